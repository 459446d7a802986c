/* Go: handles are uintptr, texts string, buffers []byte, arrays slices, results pointers. Memory of Go is only used
 * during the call. */
%define TSR_HANDLE(T)
%typemap(gotype) T*, const T* "uintptr"
%typemap(in) T*, const T* { $1 = ($1_ltype)$input; }
%typemap(out) T*, const T* { $result = ($1_ltype)$1; }
%typemap(freearg) T*, const T* ""
%typemap(gotype) T** "*uintptr"
%typemap(in) T** { $1 = ($1_ltype)$input; }
%typemap(freearg) T** ""
%enddef
TSR_HANDLE(tsr_status)
TSR_HANDLE(tsr_text)
TSR_HANDLE(tsr_options)
TSR_HANDLE(tsr_runtime)
TSR_HANDLE(tsr_devices)
TSR_HANDLE(tsr_tensor)
TSR_HANDLE(tsr_graph)
TSR_HANDLE(tsr_tokenizer)
TSR_HANDLE(tsr_model)
TSR_HANDLE(tsr_loading)
TSR_HANDLE(tsr_conversion)
TSR_HANDLE(tsr_export)
TSR_HANDLE(tsr_imatrix)
TSR_HANDLE(tsr_chat)
TSR_HANDLE(tsr_dataset)
TSR_HANDLE(tsr_plan)
TSR_HANDLE(tsr_program)
TSR_HANDLE(tsr_session)
TSR_HANDLE(tsr_trainer)
TSR_HANDLE(tsr_generator)
TSR_HANDLE(tsr_scorer)
TSR_HANDLE(tsr_embedder)

/* A text with its size: the bytes of a string, not copied. An empty string of Go may have none, which is no NULL here. */
%typemap(gotype) (const char* text, size_t size), (const char* prompt, size_t size), (const char* messages, size_t size) "string"
%typemap(in) (const char* text, size_t size), (const char* prompt, size_t size), (const char* messages, size_t size) {
  $1 = $input.n > 0 ? $input.p : (char*)"";
  $2 = (size_t)$input.n;
}
%typemap(freearg) (const char* text, size_t size), (const char* prompt, size_t size), (const char* messages, size_t size) ""

/* Texts that may hold NULs. */
%typemap(out) const char* tsr_piece::text {
  $result = Swig_AllocateString($1, $1 ? arg1->text_size : 0);
}
%typemap(out) const char* tsr_text_data {
  $result = Swig_AllocateString($1, tsr_text_size(arg1));
}

%define TSR_SLICE(C_TYPE, ITEMS, COUNT, GO_TYPE)
%typemap(gotype) (C_TYPE* ITEMS, size_t COUNT) GO_TYPE
%typemap(in) (C_TYPE* ITEMS, size_t COUNT) {
  $1 = ($1_ltype)$input.array;
  $2 = (size_t)$input.len;
}
%typemap(argout) (C_TYPE* ITEMS, size_t COUNT) ""
%typemap(freearg) (C_TYPE* ITEMS, size_t COUNT) ""
%enddef
TSR_SLICE(char, buffer, capacity, "[]byte")
TSR_SLICE(int32_t, ids, capacity, "[]int32")
TSR_SLICE(int32_t, items, capacity, "[]int32")
TSR_SLICE(const int32_t, ids, count, "[]int32")
TSR_SLICE(const size_t, lengths, text_count, "[]uint64")
TSR_SLICE(const size_t, literal, literal_count, "[]uint64")
TSR_SLICE(float, items, capacity, "[]float32")
TSR_SLICE(uint8_t, items, capacity, "[]byte")
TSR_SLICE(const int64_t, values, count, "[]int64")
TSR_SLICE(const tsr_value, inputs, input_count, "[]uint32")
TSR_SLICE(tsr_value, outputs, capacity, "[]uint32")

%define TSR_RESULT(C_TYPE, NAME, GO_TYPE)
%typemap(gotype) C_TYPE* NAME GO_TYPE
%typemap(in) C_TYPE* NAME { $1 = ($1_ltype)$input; }
%typemap(freearg) C_TYPE* NAME ""
%enddef
TSR_RESULT(size_t, out_size, "*uint64")
TSR_RESULT(size_t, out_count, "*uint64")
TSR_RESULT(size_t, begins, "*uint64")
TSR_RESULT(uint8_t, assistant, "*byte")
TSR_RESULT(int32_t, out_level, "*int32")
TSR_RESULT(double, out_loss, "*float64")
TSR_RESULT(double, out_done, "*float64")
TSR_RESULT(int64_t, out_extent, "*int64")
TSR_RESULT(tsr_value, out_value, "*uint32")

/* Data of a tensor: an address, read by the layer above while the tensor lives. */
%typemap(gotype) const void* "uintptr"
%typemap(out) const void* { $result = (void*)$1; }
