/* Python: handles are int, texts str or buffers, arrays buffers of the very element type (None: absent), and what a call
 * writes comes back after its status, in a tuple. Memory of Python is used during a call alone; what is kept longer is in
 * typemaps/python_memory.i, and what the library calls in typemaps/python_callbacks.i. All use the limited API of Python 3.11
 * only. */
%begin %{
#define PY_SSIZE_T_CLEAN
%}

/* Written by the calls below into tuples. */
%ignore tsr_progress;
%ignore tsr_piece;
%ignore tsr_event;
%ignore tsr_run_event;
%ignore tsr_step;
%ignore tsr_raw_progress_size;
%ignore tsr_raw_step_size;
%ignore tsr_raw_piece_size;
%ignore tsr_raw_event_size;
%ignore tsr_raw_run_event_size;

/* Views take their place. */
%ignore tsr_raw_tensor_read;
%ignore tsr_raw_tensor_write;

/* Short calls that wait for nothing keep the interpreter's lock. */
%nothread tsr_status_code;
%nothread tsr_status_message;
%nothread tsr_status_number;
%nothread tsr_status_number_key;
%nothread tsr_code_name;
%nothread tsr_text_data;
%nothread tsr_text_size;
%nothread tsr_options_new;
%nothread tsr_options_set_i64;
%nothread tsr_options_set_f64;
%nothread tsr_options_set_str;
%nothread tsr_options_set_i64_list;
%nothread tsr_tensor_dtype;
%nothread tsr_tensor_rank;
%nothread tsr_tensor_bytes;

%{
#include <string.h>

/* Whether the call writes items of type T. */
#define TSR_PY_WRITABLE(T)                                                                                      \
  _Generic((T*)0, const uint8_t*: 0, const int32_t*: 0, const uint32_t*: 0, const int64_t*: 0, const size_t*: 0, \
           const float*: 0, default: 1)

/* The result of a wrapper and one more value, as a tuple. Takes both references; NULL is an exception. */
static PyObject* tsr_py_append(PyObject* result, PyObject* value) {
  PyObject* all = NULL;
  if (result != NULL && value != NULL) {
    const Py_ssize_t count = PyTuple_Check(result) ? PyTuple_Size(result) : 1;
    all = PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; all != NULL && i < count; ++i) {
      PyTuple_SetItem(all, i, Py_NewRef(PyTuple_Check(result) ? PyTuple_GetItem(result, i) : result));
    }
    if (all != NULL) PyTuple_SetItem(all, count, Py_NewRef(value));
  }
  Py_XDECREF(result);
  Py_XDECREF(value);
  return all;
}

/* The address that an int holds; NULL for None, and with an exception. */
static void* tsr_py_address(PyObject* object, const char* name) {
  if (object == Py_None) return NULL;
  if (PyLong_Check(object)) return PyLong_AsVoidPtr(object);
  PyErr_Format(PyExc_TypeError, "%s: wanted an int or None", name);
  return NULL;
}

/* A NUL-terminated text of a str or bytes that outlives the call; NULL for None, and with an exception. */
static const char* tsr_py_string(PyObject* object, const char* name) {
  if (object == Py_None) return NULL;
  if (PyUnicode_Check(object)) return PyUnicode_AsUTF8AndSize(object, NULL);
  if (PyBytes_Check(object)) return PyBytes_AsString(object);
  PyErr_Format(PyExc_TypeError, "%s: wanted a str, bytes or None", name);
  return NULL;
}

/* The bytes of a str or a buffer. view is released by the caller where *held is 1. Returns 0, or -1 with an exception. */
static int tsr_py_bytes(PyObject* object, Py_buffer* view, int* held, const char** data, size_t* size) {
  Py_ssize_t count = 0;
  *data = NULL;
  *size = 0;
  if (object == Py_None) return 0;
  if (PyUnicode_Check(object)) {
    *data = PyUnicode_AsUTF8AndSize(object, &count);
    if (*data == NULL) return -1;
  } else {
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) != 0) return -1;
    *held = 1;
    *data = view->buf == NULL ? "" : (const char*)view->buf;
    count = view->len;
  }
  *size = (size_t)count;
  return 0;
}

/* The items of a contiguous buffer, whose format is one of `formats` and has `item_size` bytes. None: none. As above. */
static int tsr_py_items(PyObject* object, Py_buffer* view, int* held, int writable, const char* formats,
                        size_t item_size, const char* name, const char* wanted) {
  memset(view, 0, sizeof *view);
  if (object == Py_None) return 0;
  if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) != 0) {
    return -1;
  }
  *held = 1;
  const char* format = view->format == NULL ? "B" : view->format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (*format != 0 && format[1] == 0 && strchr(formats, *format) != NULL && (size_t)view->itemsize == item_size) return 0;
  PyErr_Format(PyExc_TypeError, "%s: found a buffer of '%s', %zd bytes an item, wanted %s", name, format, view->itemsize,
               wanted);
  return -1;
}
%}

%define TSR_HANDLE(T)
%typemap(in) T*, const T* {
  $1 = ($1_ltype)tsr_py_address($input, "$1_name");
  if ($1 == NULL && PyErr_Occurred()) SWIG_fail;
}
%typemap(out) T*, const T* { $result = PyLong_FromVoidPtr((void*)$1); }
%typemap(in, numinputs=0) T** (T* made = NULL) { $1 = &made; }
%typemap(argout) T** { $result = tsr_py_append($result, PyLong_FromVoidPtr((void*)*$1)); }
%enddef

%typemap(in) const char* {
  $1 = ($1_ltype)tsr_py_string($input, "$1_name");
  if ($1 == NULL && PyErr_Occurred()) SWIG_fail;
}
%typemap(freearg) const char* ""
%typemap(out) const char* {
  $result = PyUnicode_DecodeUTF8($1 == NULL ? "" : $1, $1 == NULL ? 0 : (Py_ssize_t)strlen($1), "replace");
}
%typemap(out) const char* tsr_text_data { $result = PyBytes_FromStringAndSize($1, (Py_ssize_t)tsr_text_size(arg1)); }

%define TSR_TEXT(NAME)
%typemap(in) (const char* NAME, size_t size) (Py_buffer view, int held = 0) {
  if (tsr_py_bytes($input, &view, &held, (const char**)&$1, &$2) != 0) SWIG_fail;
}
%typemap(freearg) (const char* NAME, size_t size) { if (held$argnum) PyBuffer_Release(&view$argnum); }
%enddef

/* T is const where the call only reads. */
%define TSR_PY_ITEMS(FORMATS, WANTED, T, NAME, COUNT)
%typemap(in) (T* NAME, size_t COUNT) (Py_buffer view, int held = 0) {
  if (tsr_py_items($input, &view, &held, TSR_PY_WRITABLE(T), FORMATS, sizeof(T), "$1_name", WANTED) != 0) {
    SWIG_fail;
  }
  $1 = ($1_ltype)view.buf;
  $2 = (size_t)view.len / sizeof(T);
}
%typemap(argout) (T* NAME, size_t COUNT) ""
%typemap(freearg) (T* NAME, size_t COUNT) { if (held$argnum) PyBuffer_Release(&view$argnum); }
%enddef
%define TSR_PY_ARRAY(FORMATS, WANTED, T, NAME)
%typemap(in) T* NAME (Py_buffer view, int held = 0) {
  if (tsr_py_items($input, &view, &held, TSR_PY_WRITABLE(T), FORMATS, sizeof(T), "$1_name", WANTED) != 0) {
    SWIG_fail;
  }
  $1 = ($1_ltype)view.buf;
}
%typemap(argout) T* NAME ""
%typemap(freearg) T* NAME { if (held$argnum) PyBuffer_Release(&view$argnum); }
%enddef
%define TSR_PY_RESULT(MAKE, T, NAME)
%typemap(in, numinputs=0) T* NAME (T found = 0) { $1 = &found; }
%typemap(argout) T* NAME { $result = tsr_py_append($result, MAKE(*$1)); }
%enddef
%define TSR_COUNTED(KIND, T, COUNT_TYPE, COUNT, NAME)
%typemap(in) (COUNT_TYPE COUNT, T* NAME) (Py_buffer view, int held = 0) {
  if (tsr_py_items($input, &view, &held, 0, "ql", sizeof(T), "$2_name", "int64") != 0) SWIG_fail;
  $1 = (COUNT_TYPE)((size_t)view.len / sizeof(T));
  $2 = ($2_ltype)view.buf;
}
%typemap(freearg) (COUNT_TYPE COUNT, T* NAME) { if (held$argnum) PyBuffer_Release(&view$argnum); }
%enddef

%define TSR_ITEMS_byte(T, NAME, COUNT) TSR_PY_ITEMS("Bbc", "bytes", T, NAME, COUNT) %enddef
%define TSR_ITEMS_uint8(T, NAME, COUNT) TSR_PY_ITEMS("Bbc?", "uint8", T, NAME, COUNT) %enddef
%define TSR_ITEMS_int32(T, NAME, COUNT) TSR_PY_ITEMS("il", "int32", T, NAME, COUNT) %enddef
%define TSR_ITEMS_uint32(T, NAME, COUNT) TSR_PY_ITEMS("IL", "uint32", T, NAME, COUNT) %enddef
%define TSR_ITEMS_int64(T, NAME, COUNT) TSR_PY_ITEMS("ql", "int64", T, NAME, COUNT) %enddef
%define TSR_ITEMS_size(T, NAME, COUNT) TSR_PY_ITEMS("QLN", "uint64", T, NAME, COUNT) %enddef
%define TSR_ITEMS_float32(T, NAME, COUNT) TSR_PY_ITEMS("f", "float32", T, NAME, COUNT) %enddef
%define TSR_ARRAY_uint8(T, NAME) TSR_PY_ARRAY("Bbc?", "uint8", T, NAME) %enddef
%define TSR_ARRAY_int32(T, NAME) TSR_PY_ARRAY("il", "int32", T, NAME) %enddef
%define TSR_ARRAY_int64(T, NAME) TSR_PY_ARRAY("ql", "int64", T, NAME) %enddef
%define TSR_ARRAY_size(T, NAME) TSR_PY_ARRAY("QLN", "uint64", T, NAME) %enddef
%define TSR_ARRAY_float32(T, NAME) TSR_PY_ARRAY("f", "float32", T, NAME) %enddef
%define TSR_RESULT_int32(T, NAME) TSR_PY_RESULT(PyLong_FromLong, T, NAME) %enddef
%define TSR_RESULT_uint32(T, NAME) TSR_PY_RESULT(PyLong_FromUnsignedLong, T, NAME) %enddef
%define TSR_RESULT_int64(T, NAME) TSR_PY_RESULT(PyLong_FromLongLong, T, NAME) %enddef
%define TSR_RESULT_size(T, NAME) TSR_PY_RESULT(PyLong_FromSize_t, T, NAME) %enddef
%define TSR_RESULT_float64(T, NAME) TSR_PY_RESULT(PyFloat_FromDouble, T, NAME) %enddef
%define TSR_ITEMS(KIND, T, NAME, COUNT) TSR_ITEMS_##KIND(T, NAME, COUNT) %enddef
%define TSR_ARRAY(KIND, T, NAME) TSR_ARRAY_##KIND(T, NAME) %enddef
%define TSR_RESULT(KIND, T, NAME) TSR_RESULT_##KIND(T, NAME) %enddef

/* (fraction, done, total, unit, label) */
%typemap(in, numinputs=0) tsr_progress* out_progress (tsr_progress progress) {
  memset(&progress, 0, sizeof progress);
  progress.struct_size = sizeof progress;
  $1 = &progress;
}
%typemap(argout) tsr_progress* out_progress {
  $result = tsr_py_append($result, Py_BuildValue("(dLLss)", $1->fraction, (long long)$1->done, (long long)$1->total,
                                                 $1->unit == NULL ? "" : $1->unit, $1->label == NULL ? "" : $1->label));
}

/* (kind, finish, token, text as bytes) */
%typemap(in, numinputs=0) tsr_piece* out_piece (tsr_piece piece) {
  memset(&piece, 0, sizeof piece);
  piece.struct_size = sizeof piece;
  $1 = &piece;
}
%typemap(argout) tsr_piece* out_piece {
  const char* text = $1->text == NULL ? "" : $1->text;
  const Py_ssize_t text_size = $1->text == NULL ? 0 : (Py_ssize_t)$1->text_size;
  $result = tsr_py_append($result, Py_BuildValue("(iiiN)", (int)$1->kind, (int)$1->finish, (int)$1->token,
                                                 PyBytes_FromStringAndSize(text, text_size)));
}

/* (kind, finish, request, index, token, text as bytes, details as bytes) */
%typemap(in, numinputs=0) tsr_event* out_event (tsr_event event) {
  memset(&event, 0, sizeof event);
  event.struct_size = sizeof event;
  $1 = &event;
}
%typemap(argout) tsr_event* out_event {
  $result = tsr_py_append($result, Py_BuildValue("(iiLiiy#y#)", (int)$1->kind, (int)$1->finish, (long long)$1->request,
                                                 (int)$1->index, (int)$1->token, $1->text == NULL ? "" : $1->text,
                                                 (Py_ssize_t)($1->text == NULL ? 0 : $1->text_size),
                                                 $1->details == NULL ? "" : $1->details,
                                                 (Py_ssize_t)($1->details == NULL ? 0 : $1->details_size)));
}

/* (kind, step, loss, details as bytes) */
%typemap(in, numinputs=0) tsr_run_event* out_event (tsr_run_event event) {
  memset(&event, 0, sizeof event);
  event.struct_size = sizeof event;
  $1 = &event;
}
%typemap(argout) tsr_run_event* out_event {
  $result = tsr_py_append($result, Py_BuildValue("(iLdy#)", (int)$1->kind, (long long)$1->step, $1->loss,
                                                 $1->details == NULL ? "" : $1->details,
                                                 (Py_ssize_t)($1->details == NULL ? 0 : $1->details_size)));
}

/* (step, loss, grad_norm, lr, seconds, and the rewards of a preference loss) */
%typemap(in, numinputs=0) tsr_step* out_step (tsr_step step) {
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  $1 = &step;
}
%typemap(argout) tsr_step* out_step {
  $result = tsr_py_append($result, Py_BuildValue("(Ldddddddd)", (long long)$1->step, $1->loss, $1->grad_norm, $1->lr,
                                                 $1->seconds, $1->chosen_reward, $1->rejected_reward,
                                                 $1->reward_margin, $1->reward_accuracy));
}

/* Data of a tensor: an address, which the layer above turns into a view that keeps the tensor. */
%typemap(out) const void*, void* { $result = PyLong_FromVoidPtr((void*)$1); }
