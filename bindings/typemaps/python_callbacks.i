/* Python: functions of Python that the library calls as long as a runtime lives. Each is a loan: the library keeps it until
 * it is replaced, or until the runtime and all that was made from it are freed. */
%{
static void tsr_py_log(void* context, int32_t level, const char* text) {
  PyObject* log = ((tsr_py_loan*)context)->object;
  PyGILState_STATE state;
  if (!tsr_py_enter(&state)) return;
  PyObject* message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  PyObject* answer = message == NULL ? NULL : PyObject_CallFunction(log, "iO", (int)level, message);
  Py_XDECREF(answer);
  Py_XDECREF(message);
  tsr_py_leave(log, state);
}

/* The functions of tsr_hooks, a tuple in this order. */
enum { TSR_PY_ALLOCATE, TSR_PY_DEALLOCATE, TSR_PY_THREAD_STARTED };
static PyObject* tsr_py_hook(void* context, int which) {
  return PyTuple_GetItem(((tsr_py_loan*)context)->object, which);
}

static void* tsr_py_allocate(void* context, size_t bytes, size_t alignment) {
  PyGILState_STATE state;
  if (!tsr_py_enter(&state)) return NULL;
  PyObject* allocate = tsr_py_hook(context, TSR_PY_ALLOCATE);
  PyObject* answer = PyObject_CallFunction(allocate, "KK", (unsigned long long)bytes, (unsigned long long)alignment);
  PyObject* number = answer == NULL || answer == Py_None ? NULL : PyNumber_Index(answer);
  const size_t address = number == NULL ? 0 : PyLong_AsSize_t(number);
  const int is_wrong = PyErr_Occurred() != NULL;
  Py_XDECREF(number);
  Py_XDECREF(answer);
  tsr_py_leave(allocate, state);
  return is_wrong ? NULL : (void*)address;
}

static void tsr_py_deallocate(void* context, void* memory, size_t bytes) {
  PyGILState_STATE state;
  if (!tsr_py_enter(&state)) return; /* the process ends, and its memory with it */
  PyObject* deallocate = tsr_py_hook(context, TSR_PY_DEALLOCATE);
  Py_XDECREF(PyObject_CallFunction(deallocate, "KK", (unsigned long long)(uintptr_t)memory, (unsigned long long)bytes));
  tsr_py_leave(deallocate, state);
}

static void tsr_py_thread_started(void* context, const char* role, int32_t number) {
  PyGILState_STATE state;
  if (!tsr_py_enter(&state)) return;
  PyObject* started = tsr_py_hook(context, TSR_PY_THREAD_STARTED);
  Py_XDECREF(PyObject_CallFunction(started, "si", role, (int)number));
  tsr_py_leave(started, state);
}
%}

TSR_PY_OWN(tsr_raw_runtime_set_log)
TSR_PY_OWN(tsr_raw_runtime_new_with_hooks)

%inline %{
/* log(level, text), or None. */
static tsr_status* tsr_raw_runtime_set_log(tsr_runtime* runtime, PyObject* log) {
  tsr_py_loan* loan = log == Py_None ? NULL : tsr_py_begin_loan(log);
  if (loan == NULL && log != Py_None) return NULL;
  tsr_status* status;
  Py_BEGIN_ALLOW_THREADS
  status = tsr_runtime_set_log(runtime, loan == NULL ? NULL : tsr_py_log, loan == NULL ? NULL : tsr_py_end_loan, loan);
  Py_END_ALLOW_THREADS
  tsr_py_collect(NULL);
  return status;
}

/* allocate(bytes, alignment) -> address or None, deallocate(address, bytes), thread_started(role, number); each may be
 * None. */
static tsr_status* tsr_raw_runtime_new_with_hooks(const tsr_options* options, PyObject* allocate, PyObject* deallocate,
                                                  PyObject* thread_started, tsr_runtime** out_runtime) {
  PyObject* functions = PyTuple_Pack(3, allocate, deallocate, thread_started);
  tsr_py_loan* loan = functions == NULL ? NULL : tsr_py_begin_loan(functions);
  Py_XDECREF(functions);
  if (loan == NULL) return NULL;
  const tsr_hooks hooks = {.struct_size = sizeof hooks,
                           .context = loan,
                           .allocate = allocate == Py_None ? NULL : tsr_py_allocate,
                           .deallocate = deallocate == Py_None ? NULL : tsr_py_deallocate,
                           .thread_started = thread_started == Py_None ? NULL : tsr_py_thread_started,
                           .release = tsr_py_end_loan};
  tsr_status* status;
  Py_BEGIN_ALLOW_THREADS
  status = tsr_runtime_new_with_hooks(options, &hooks, out_runtime);
  Py_END_ALLOW_THREADS
  tsr_py_collect(NULL);
  return status;
}
%}
