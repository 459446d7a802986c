/* Go: handles are uintptr, texts string, buffers []byte, arrays slices, what may be absent a pointer to the first element,
 * results pointers. Memory of Go is only used during the call. */
%define TSR_HANDLE(T)
%typemap(gotype) T*, const T* "uintptr"
%typemap(in) T*, const T* { $1 = ($1_ltype)$input; }
%typemap(out) T*, const T* { $result = ($1_ltype)$1; }
%typemap(freearg) T*, const T* ""
%typemap(gotype) T** "*uintptr"
%typemap(in) T** { $1 = ($1_ltype)$input; }
%typemap(freearg) T** ""
%enddef

/* The bytes of a string, not copied. An empty string of Go may have none, which is no NULL here. */
%define TSR_TEXT(NAME)
%typemap(gotype) (const char* NAME, size_t size) "string"
%typemap(in) (const char* NAME, size_t size) {
  $1 = $input.n > 0 ? $input.p : (char*)"";
  $2 = (size_t)$input.n;
}
%typemap(freearg) (const char* NAME, size_t size) ""
%enddef

/* Texts that may hold NULs. */
%typemap(out) const char* tsr_piece::text {
  $result = Swig_AllocateString($1, $1 ? arg1->text_size : 0);
}
%typemap(out) const char* tsr_event::text {
  $result = Swig_AllocateString($1, $1 ? arg1->text_size : 0);
}
%typemap(out) const char* tsr_event::details {
  $result = Swig_AllocateString($1, $1 ? arg1->details_size : 0);
}
%typemap(out) const char* tsr_run_event::details {
  $result = Swig_AllocateString($1, $1 ? arg1->details_size : 0);
}
%typemap(out) const char* tsr_text_data {
  $result = Swig_AllocateString($1, tsr_text_size(arg1));
}

%define TSR_GO_ITEMS(GO_TYPE, T, NAME, COUNT)
%typemap(gotype) (T* NAME, size_t COUNT) GO_TYPE
%typemap(in) (T* NAME, size_t COUNT) {
  $1 = ($1_ltype)$input.array;
  $2 = (size_t)$input.len;
}
%typemap(argout) (T* NAME, size_t COUNT) ""
%typemap(freearg) (T* NAME, size_t COUNT) ""
%enddef
%define TSR_GO_POINTER(GO_TYPE, T, NAME)
%typemap(gotype) T* NAME GO_TYPE
%typemap(in) T* NAME { $1 = ($1_ltype)$input; }
%typemap(freearg) T* NAME ""
%enddef
%define TSR_ITEMS_byte(T, NAME, COUNT) TSR_GO_ITEMS("[]byte", T, NAME, COUNT) %enddef
%define TSR_ITEMS_uint8(T, NAME, COUNT) TSR_GO_ITEMS("[]byte", T, NAME, COUNT) %enddef
%define TSR_ITEMS_int32(T, NAME, COUNT) TSR_GO_ITEMS("[]int32", T, NAME, COUNT) %enddef
%define TSR_ITEMS_uint32(T, NAME, COUNT) TSR_GO_ITEMS("[]uint32", T, NAME, COUNT) %enddef
%define TSR_ITEMS_int64(T, NAME, COUNT) TSR_GO_ITEMS("[]int64", T, NAME, COUNT) %enddef
%define TSR_ITEMS_size(T, NAME, COUNT) TSR_GO_ITEMS("[]uint64", T, NAME, COUNT) %enddef
%define TSR_ITEMS_float32(T, NAME, COUNT) TSR_GO_ITEMS("[]float32", T, NAME, COUNT) %enddef
%define TSR_POINTER_uint8(T, NAME) TSR_GO_POINTER("*byte", T, NAME) %enddef
%define TSR_POINTER_int32(T, NAME) TSR_GO_POINTER("*int32", T, NAME) %enddef
%define TSR_POINTER_uint32(T, NAME) TSR_GO_POINTER("*uint32", T, NAME) %enddef
%define TSR_POINTER_int64(T, NAME) TSR_GO_POINTER("*int64", T, NAME) %enddef
%define TSR_POINTER_size(T, NAME) TSR_GO_POINTER("*uint64", T, NAME) %enddef
%define TSR_POINTER_float32(T, NAME) TSR_GO_POINTER("*float32", T, NAME) %enddef
%define TSR_POINTER_float64(T, NAME) TSR_GO_POINTER("*float64", T, NAME) %enddef
%define TSR_ITEMS(KIND, T, NAME, COUNT) TSR_ITEMS_##KIND(T, NAME, COUNT) %enddef
%define TSR_ARRAY(KIND, T, NAME) TSR_POINTER_##KIND(T, NAME) %enddef
%define TSR_RESULT(KIND, T, NAME) TSR_POINTER_##KIND(T, NAME) %enddef
%define TSR_COUNTED(KIND, T, COUNT_TYPE, COUNT, NAME)
%typemap(gotype) (COUNT_TYPE COUNT, T* NAME) "[]int64"
%typemap(in) (COUNT_TYPE COUNT, T* NAME) {
  $1 = (COUNT_TYPE)$input.len;
  $2 = ($2_ltype)$input.array;
}
%typemap(argout) (COUNT_TYPE COUNT, T* NAME) ""
%typemap(freearg) (COUNT_TYPE COUNT, T* NAME) ""
%enddef

/* Data of a tensor: an address, used by the layer above while the tensor lives. */
%typemap(gotype) const void*, void* "uintptr"
%typemap(out) const void*, void* { $result = (void*)$1; }
