/* Python: memory that outlives a call.
 *
 *   loan       memory of Python that the library borrows: tsr_raw_tensor_borrow, tsr_raw_model_load_bytes,
 *              tsr_raw_model_load_reader, tsr_raw_tensor_from_dlpack. It is given back from any thread, without the
 *              interpreter's lock: a loan that ends is put on a list, which is emptied at the next occasion
 *   callback   a function of Python that the library calls, from any thread: tsr_py_enter takes the interpreter's lock,
 *              tsr_py_leave gives it back. Handles that become garbage meanwhile are freed afterwards: freeing is a call of
 *              the library, which a callback may not make
 *   Owner      frees a handle at the end of its last reference, without a step of Python's interpreter, in which a signal
 *              handler could run whose exception would be lost
 *   Block      memory of the library as a buffer of Python; it keeps its owner
 *   Exporter   a base class: the buffer of an object is what its method _block returns
 *
 * After tsr_raw_shutdown nothing enters the interpreter any more. */
%{
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static atomic_int tsr_py_closed;

static atomic_int tsr_py_callbacks;        /* in progress, on all threads */
static _Thread_local int tsr_py_depth = 0; /* of those, on this thread */

/* ---- loans */

typedef struct tsr_py_loan {
  struct tsr_py_loan* next;
  Py_buffer view;    /* of a buffer: its obj is not NULL */
  PyObject* object;  /* or NULL */
  size_t address;    /* of a handle that object(address) frees; or 0 */
} tsr_py_loan;
static _Atomic(tsr_py_loan*) tsr_py_ended;
static atomic_int tsr_py_scheduled; /* a pending call of tsr_py_collect */

static void tsr_py_free(PyObject* free, size_t address) {
  PyObject* freed = PyObject_CallFunction(free, "K", (unsigned long long)address);
  if (freed == NULL) PyErr_WriteUnraisable(free);
  Py_XDECREF(freed);
}

static int tsr_py_collect(void* unused) {
  (void)unused;
  atomic_store(&tsr_py_scheduled, 0);
  if (tsr_py_depth > 0) return 0; /* tsr_py_leave schedules another */
  tsr_py_loan* loan = atomic_exchange(&tsr_py_ended, NULL);
  while (loan != NULL) {
    tsr_py_loan* next = loan->next;
    if (loan->address != 0) tsr_py_free(loan->object, loan->address);
    if (loan->view.obj != NULL) PyBuffer_Release(&loan->view);
    Py_XDECREF(loan->object);
    free(loan);
    loan = next;
  }
  return 0;
}

static void tsr_py_schedule(void) {
  if (atomic_exchange(&tsr_py_scheduled, 1) == 0 && Py_AddPendingCall(tsr_py_collect, NULL) != 0) {
    atomic_store(&tsr_py_scheduled, 0); /* too many are pending: the next occasion is another's */
  }
}

/* The release function of every loan. */
static void tsr_py_end_loan(void* context) {
  tsr_py_loan* loan = (tsr_py_loan*)context;
  if (atomic_load(&tsr_py_closed)) return; /* the process ends, and its memory with it */
  loan->next = atomic_load(&tsr_py_ended);
  while (!atomic_compare_exchange_weak(&tsr_py_ended, &loan->next, loan)) continue;
  tsr_py_schedule();
}

static tsr_py_loan* tsr_py_begin_loan(PyObject* object) {
  tsr_py_loan* loan = (tsr_py_loan*)calloc(1, sizeof(tsr_py_loan));
  if (loan == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  loan->object = Py_XNewRef(object);
  return loan;
}

static tsr_py_loan* tsr_py_begin_buffer(PyObject* buffer) {
  tsr_py_loan* loan = tsr_py_begin_loan(NULL);
  if (loan != NULL && PyObject_GetBuffer(buffer, &loan->view, PyBUF_C_CONTIGUOUS) != 0) {
    free(loan);
    return NULL;
  }
  return loan;
}
static const void* tsr_py_data(const tsr_py_loan* loan) { return loan->view.buf == NULL ? "" : loan->view.buf; }

/* ---- callbacks */

/* Takes the interpreter's lock until tsr_py_leave. Returns 0, without the lock, after the shutdown. */
static int tsr_py_enter(PyGILState_STATE* state) {
  atomic_fetch_add(&tsr_py_callbacks, 1);
  if (atomic_load(&tsr_py_closed)) {
    atomic_fetch_sub(&tsr_py_callbacks, 1);
    return 0;
  }
  *state = PyGILState_Ensure();
  ++tsr_py_depth;
  return 1;
}

/* The exception that the callback ends with, if any, goes to sys.unraisablehook. KeyboardInterrupt comes again, in the main
 * thread, once that is out of the library. */
static void tsr_py_leave(PyObject* function, PyGILState_STATE state) {
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();
  } else if (PyErr_Occurred()) {
    PyErr_WriteUnraisable(function);
  }
  if (tsr_py_depth == 1 && atomic_load(&tsr_py_ended) != NULL) tsr_py_schedule();
  PyGILState_Release(state);
  --tsr_py_depth;
  atomic_fetch_sub(&tsr_py_callbacks, 1);
}

/* ---- a file that Python reads: read(offset, view) fills the view and returns True */

static int32_t tsr_py_read_at(void* context, int64_t offset, void* out, size_t bytes) {
  PyObject* read = ((tsr_py_loan*)context)->object;
  PyGILState_STATE state;
  if (!tsr_py_enter(&state)) return 1;
  PyObject* view = PyMemoryView_FromMemory(bytes == 0 ? (char*)"" : (char*)out, (Py_ssize_t)bytes, PyBUF_WRITE);
  PyObject* answer = view == NULL ? NULL : PyObject_CallFunction(read, "LO", (long long)offset, view);
  PyObject* released = answer == NULL ? NULL : PyObject_CallMethod(view, "release", NULL);
  const int filled = answer == Py_True && released != NULL;
  Py_XDECREF(released);
  Py_XDECREF(answer);
  Py_XDECREF(view);
  tsr_py_leave(read, state);
  return filled ? 0 : 1;
}

/* ---- Owner */

typedef struct {
  PyObject_HEAD
  PyObject* free; /* a function of this module */
  size_t address;
} tsr_py_owner;
static PyObject* tsr_py_owner_type;

static void tsr_py_owner_dealloc(PyObject* self) {
  tsr_py_owner* owner = (tsr_py_owner*)self;
  PyTypeObject* type = Py_TYPE(self);
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);
  if (owner->free != NULL) {
    tsr_py_loan* later = tsr_py_depth > 0 ? tsr_py_begin_loan(owner->free) : NULL;
    if (later != NULL) {
      later->address = owner->address;
      tsr_py_end_loan(later);
    } else {
      tsr_py_free(owner->free, owner->address);
    }
    Py_DECREF(owner->free);
    tsr_py_collect(NULL);
  }
  PyErr_Restore(kind, value, trace);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF((PyObject*)type);
}
static PyType_Slot tsr_py_owner_slots[] = {{Py_tp_dealloc, (void*)tsr_py_owner_dealloc},
                                           {Py_tp_doc, (void*)"Frees a handle when nothing refers to it."},
                                           {0, NULL}};
static PyType_Spec tsr_py_owner_spec = {"tessera.raw.Owner", sizeof(tsr_py_owner), 0,
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, tsr_py_owner_slots};

/* ---- Block and Exporter */

typedef struct {
  PyObject_HEAD
  PyObject* owner;
  void* data;
  Py_ssize_t size, item_size, shape[TSR_MAX_RANK], strides[TSR_MAX_RANK];
  int rank, readonly;
  char format[2];
} tsr_py_block;
static PyObject* tsr_py_block_type;

static int tsr_py_block_get(PyObject* self, Py_buffer* view, int flags) {
  tsr_py_block* block = (tsr_py_block*)self;
  view->obj = NULL;
  if (block->readonly && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
    PyErr_SetString(PyExc_BufferError, "a borrowed tensor, or one of a file, cannot be written");
    return -1;
  }
  view->buf = block->data == NULL ? (void*)"" : block->data;
  view->len = block->size;
  view->readonly = block->readonly;
  view->itemsize = block->item_size;
  view->format = (flags & PyBUF_FORMAT) ? block->format : NULL;
  view->ndim = (flags & PyBUF_ND) ? block->rank : 1;
  view->shape = (flags & PyBUF_ND) ? block->shape : NULL;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? block->strides : NULL;
  view->suboffsets = NULL;
  view->internal = NULL;
  view->obj = Py_NewRef(self);
  return 0;
}
static void tsr_py_block_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(((tsr_py_block*)self)->owner);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF((PyObject*)type);
}
static int tsr_py_exporter_get(PyObject* self, Py_buffer* view, int flags) {
  view->obj = NULL;
  PyObject* block = PyObject_CallMethod(self, "_block", NULL);
  if (block == NULL) return -1;
  const int result = PyObject_GetBuffer(block, view, flags);
  Py_DECREF(block);
  return result;
}
static PyType_Slot tsr_py_block_slots[] = {{Py_bf_getbuffer, (void*)tsr_py_block_get},
                                           {Py_tp_dealloc, (void*)tsr_py_block_dealloc},
                                           {Py_tp_doc, (void*)"Memory of the library, with what owns it."},
                                           {0, NULL}};
static PyType_Spec tsr_py_block_spec = {"tessera.raw.Block", sizeof(tsr_py_block), 0,
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, tsr_py_block_slots};
static PyType_Slot tsr_py_exporter_slots[] = {{Py_bf_getbuffer, (void*)tsr_py_exporter_get},
                                              {Py_tp_doc, (void*)"A base class whose objects are buffers."},
                                              {0, NULL}};
static PyType_Spec tsr_py_exporter_spec = {"tessera.raw.Exporter", sizeof(PyObject), 0,
                                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, tsr_py_exporter_slots};

/* ---- DLPack (dlpack.h, version 1.0): structs that other libraries read and write */

typedef struct { int32_t device_type, device_id; } tsr_dl_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } tsr_dl_type;
typedef struct {
  void* data;
  tsr_dl_device device;
  int32_t ndim;
  tsr_dl_type dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} tsr_dl_tensor;
typedef struct tsr_dl_managed {
  tsr_dl_tensor tensor;
  void* context;
  void (*deleter)(struct tsr_dl_managed*);
} tsr_dl_managed;
typedef struct tsr_dl_versioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct tsr_dl_versioned*);
  uint64_t flags; /* bit 0: read-only, bit 1: a copy */
  tsr_dl_tensor tensor;
} tsr_dl_versioned;
typedef struct {
  union { tsr_dl_managed old; tsr_dl_versioned new; } as;
  int64_t shape[TSR_MAX_RANK], strides[TSR_MAX_RANK];
  PyObject* block;
} tsr_py_dl;

static void tsr_py_dl_free(tsr_py_dl* dl) {
  if (dl != NULL && !atomic_load(&tsr_py_closed)) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(dl->block);
    PyGILState_Release(state);
    free(dl);
  }
}
static void tsr_py_dl_delete_old(tsr_dl_managed* managed) { tsr_py_dl_free((tsr_py_dl*)managed->context); }
static void tsr_py_dl_delete_new(tsr_dl_versioned* managed) { tsr_py_dl_free((tsr_py_dl*)managed->context); }

/* Of a capsule that nobody took: one that was taken has another name. */
static void tsr_py_dl_capsule_free(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    tsr_dl_managed* managed = (tsr_dl_managed*)PyCapsule_GetPointer(capsule, "dltensor");
    managed->deleter(managed);
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    tsr_dl_versioned* managed = (tsr_dl_versioned*)PyCapsule_GetPointer(capsule, "dltensor_versioned");
    managed->deleter(managed);
  }
}

/* The release function of a tensor that was taken from a capsule. */
static void tsr_py_dl_release_old(void* context) {
  tsr_dl_managed* managed = (tsr_dl_managed*)context;
  if (managed->deleter != NULL && !atomic_load(&tsr_py_closed)) managed->deleter(managed);
}
static void tsr_py_dl_release_new(void* context) {
  tsr_dl_versioned* managed = (tsr_dl_versioned*)context;
  if (managed->deleter != NULL && !atomic_load(&tsr_py_closed)) managed->deleter(managed);
}
%}

%init %{
  tsr_py_owner_type = PyType_FromSpec(&tsr_py_owner_spec);
  tsr_py_block_type = PyType_FromSpec(&tsr_py_block_spec);
  PyObject* tsr_py_exporter_type = PyType_FromSpec(&tsr_py_exporter_spec);
  /* What fails is an exception, which the interpreter finds after this function. */
  if (tsr_py_owner_type != NULL && tsr_py_block_type != NULL && tsr_py_exporter_type != NULL &&
      PyModule_AddObjectRef(m, "Owner", tsr_py_owner_type) == 0 &&
      PyModule_AddObjectRef(m, "Block", tsr_py_block_type) == 0) {
    PyModule_AddObjectRef(m, "Exporter", tsr_py_exporter_type);
  }
  Py_XDECREF(tsr_py_exporter_type);
%}

/* These know what the interpreter's lock protects, and release it themselves; an exception of theirs comes out. */
%define TSR_PY_OWN(NAME)
%nothread NAME;
%exception NAME {
  $action
  if (PyErr_Occurred()) SWIG_fail;
}
%enddef
TSR_PY_OWN(tsr_raw_owner)
TSR_PY_OWN(tsr_raw_shutdown)
TSR_PY_OWN(tsr_raw_forked)
TSR_PY_OWN(tsr_raw_block)
TSR_PY_OWN(tsr_raw_dlpack)
TSR_PY_OWN(tsr_raw_tensor_from_dlpack)
TSR_PY_OWN(tsr_raw_tensor_borrow)
TSR_PY_OWN(tsr_raw_model_load_bytes)
TSR_PY_OWN(tsr_raw_model_load_reader)

%inline %{
/* What frees a handle: free(address). */
static PyObject* tsr_raw_owner(PyObject* free, size_t address) {
  tsr_py_owner* owner = (tsr_py_owner*)PyType_GenericAlloc((PyTypeObject*)tsr_py_owner_type, 0);
  if (owner == NULL) return NULL;
  owner->free = Py_NewRef(free);
  owner->address = address;
  return (PyObject*)owner;
}

/* Returns when no other thread is in a callback: one that is when the interpreter ends would end within the library. */
static void tsr_raw_shutdown(void) {
  const struct timespec pause = {0, 1000000};
  atomic_store(&tsr_py_closed, 1);
  while (atomic_load(&tsr_py_callbacks) > tsr_py_depth && PyErr_CheckSignals() == 0) {
    Py_BEGIN_ALLOW_THREADS
    nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS
  }
}

/* In a forked child the callbacks of other threads never end. */
static void tsr_raw_forked(void) { atomic_store(&tsr_py_callbacks, tsr_py_depth); }

/* A tensor of a buffer's memory, which is kept until nothing uses it any more. */
static tsr_status* tsr_raw_tensor_borrow(tsr_dtype dtype, int32_t rank, const int64_t* dims, PyObject* buffer,
                                         tsr_tensor** out_tensor) {
  tsr_py_loan* loan = tsr_py_begin_buffer(buffer);
  if (loan == NULL) return NULL;
  const void* data = tsr_py_data(loan);
  const size_t bytes = (size_t)loan->view.len;
  tsr_status* status;
  Py_BEGIN_ALLOW_THREADS
  status = tsr_tensor_borrow(dtype, rank, dims, data, bytes, tsr_py_end_loan, loan, out_tensor);
  Py_END_ALLOW_THREADS
  tsr_py_collect(NULL);
  return status;
}

/* A model in a buffer, likewise. */
static tsr_status* tsr_raw_model_load_bytes(PyObject* buffer, tsr_model** out_model) {
  tsr_py_loan* loan = tsr_py_begin_buffer(buffer);
  if (loan == NULL) return NULL;
  const void* data = tsr_py_data(loan);
  const size_t bytes = (size_t)loan->view.len;
  tsr_status* status;
  Py_BEGIN_ALLOW_THREADS
  status = tsr_model_load_bytes(data, bytes, tsr_py_end_loan, loan, out_model);
  Py_END_ALLOW_THREADS
  tsr_py_collect(NULL);
  return status;
}

/* A model of `file_bytes` bytes through read(offset, view), which fills the view of memory and returns True, else False;
 * from several threads. */
static tsr_status* tsr_raw_model_load_reader(PyObject* read, int64_t file_bytes, tsr_model** out_model) {
  tsr_py_loan* loan = tsr_py_begin_loan(read);
  if (loan == NULL) return NULL;
  tsr_reader reader = {sizeof reader, loan, file_bytes, tsr_py_read_at, tsr_py_end_loan};
  tsr_status* status;
  Py_BEGIN_ALLOW_THREADS
  status = tsr_model_load_reader(&reader, out_model);
  Py_END_ALLOW_THREADS
  tsr_py_collect(NULL);
  return status;
}

/* A buffer of `bytes` bytes at an address, with items of one format of the module struct. owner lives as long as it. */
static PyObject* tsr_raw_block(size_t address, size_t bytes, int readonly, const char* format, size_t item_size,
                               int32_t rank, const int64_t* dims, PyObject* owner) {
  if (rank < 0 || rank > TSR_MAX_RANK || format == NULL) {
    PyErr_Format(PyExc_ValueError, "found a tensor of rank %d, wanted 0 to %d", (int)rank, TSR_MAX_RANK);
    return NULL;
  }
  tsr_py_block* block = (tsr_py_block*)PyType_GenericAlloc((PyTypeObject*)tsr_py_block_type, 0);
  if (block == NULL) return NULL;
  block->owner = Py_NewRef(owner);
  block->data = (void*)address;
  block->size = (Py_ssize_t)bytes;
  block->item_size = (Py_ssize_t)item_size;
  block->rank = rank;
  block->readonly = readonly;
  block->format[0] = format[0];
  Py_ssize_t stride = block->item_size;
  for (int i = rank - 1; i >= 0; --i) {
    block->shape[i] = (Py_ssize_t)dims[i];
    block->strides[i] = stride;
    stride *= block->shape[i];
  }
  return (PyObject*)block;
}

/* A DLPack capsule of a Block, of version 1 where `versioned`. */
static PyObject* tsr_raw_dlpack(PyObject* object, int code, int bits, int versioned, int copied) {
  if ((PyObject*)Py_TYPE(object) != tsr_py_block_type) {
    PyErr_SetString(PyExc_TypeError, "wanted a Block");
    return NULL;
  }
  tsr_py_block* block = (tsr_py_block*)object;
  tsr_py_dl* dl = (tsr_py_dl*)calloc(1, sizeof(tsr_py_dl));
  if (dl == NULL) return PyErr_NoMemory();
  tsr_dl_tensor tensor = {block->data, {1, 0}, block->rank, {(uint8_t)code, (uint8_t)bits, 1}, dl->shape, dl->strides, 0};
  for (int i = 0; i < block->rank; ++i) {
    dl->shape[i] = block->shape[i];
    dl->strides[i] = block->strides[i] / block->item_size;
  }
  if (versioned) {
    tsr_dl_versioned managed = {1, 0, dl, tsr_py_dl_delete_new, (block->readonly ? 1u : 0u) | (copied ? 2u : 0u), tensor};
    dl->as.new = managed;
  } else {
    tsr_dl_managed managed = {tensor, dl, tsr_py_dl_delete_old};
    dl->as.old = managed;
  }
  PyObject* capsule = PyCapsule_New(dl, versioned ? "dltensor_versioned" : "dltensor", tsr_py_dl_capsule_free);
  if (capsule == NULL) {
    free(dl);
    return NULL;
  }
  dl->block = Py_NewRef(object);
  return capsule;
}

/* A tensor of the memory of a DLPack capsule, which is taken. */
static tsr_status* tsr_raw_tensor_from_dlpack(PyObject* capsule, tsr_tensor** out_tensor) {
  const int versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
  if (!versioned && !PyCapsule_IsValid(capsule, "dltensor")) {
    PyErr_SetString(PyExc_BufferError, "found no DLPack capsule, or one that was taken already");
    return NULL;
  }
  void* managed = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
  if (versioned && ((tsr_dl_versioned*)managed)->major != 1) {
    PyErr_Format(PyExc_BufferError, "found DLPack %u, wanted 1", (unsigned)((tsr_dl_versioned*)managed)->major);
    return NULL;
  }
  const tsr_dl_tensor* from = versioned ? &((tsr_dl_versioned*)managed)->tensor : &((tsr_dl_managed*)managed)->tensor;
  static const struct { uint8_t code, bits; tsr_dtype dtype; } types[] = {
      {2, 32, TSR_F32}, {2, 64, TSR_F64}, {2, 16, TSR_F16}, {4, 16, TSR_BF16}, {0, 32, TSR_I32},
      {0, 64, TSR_I64}, {0, 8, TSR_I8},   {1, 8, TSR_U8}};
  tsr_dtype dtype = -1;
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    if (types[i].code == from->dtype.code && types[i].bits == from->dtype.bits && from->dtype.lanes == 1) {
      dtype = types[i].dtype;
    }
  }
  if (dtype < 0) {
    PyErr_Format(PyExc_BufferError, "found DLPack's type code %d of %d bits and %d lanes, wanted f32, f64, f16, bf16, i32, "
                 "i64, i8 or u8", from->dtype.code, from->dtype.bits, from->dtype.lanes);
    return NULL;
  }
  if (from->device.device_type != 1 && from->device.device_type != 3) {
    PyErr_Format(PyExc_BufferError, "found a tensor on DLPack's device type %d, wanted one in host memory (1 or 3)",
                 (int)from->device.device_type);
    return NULL;
  }
  size_t bytes = from->dtype.bits / 8;
  int contiguous = from->ndim >= 0 && from->ndim <= TSR_MAX_RANK;
  for (int i = contiguous ? from->ndim - 1 : -1; i >= 0; --i) {
    const int64_t step = (int64_t)(bytes / (from->dtype.bits / 8));
    if (from->strides != NULL && from->shape[i] > 1 && from->strides[i] != step) contiguous = 0;
    bytes *= (size_t)from->shape[i];
    if (bytes == 0) break;
  }
  if (!contiguous) {
    PyErr_Format(PyExc_BufferError, "found strides, or %d dimensions, wanted row-major and at most %d", (int)from->ndim,
                 TSR_MAX_RANK);
    return NULL;
  }
  PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor");
  const void* data = from->data == NULL ? "" : (const char*)from->data + from->byte_offset;
  tsr_status* status;
  Py_BEGIN_ALLOW_THREADS
  status = tsr_tensor_borrow(dtype, from->ndim, from->shape, data, bytes,
                             versioned ? tsr_py_dl_release_new : tsr_py_dl_release_old, managed, out_tensor);
  Py_END_ALLOW_THREADS
  return status;
}
%}
