/* Callbacks of C become calls of Go. Handles, contexts and addresses cross as integers. */
#define TSR_UNSTABLE_API
#include <stdlib.h>
#include <tessera/tessera.h>

#include "_cgo_export.h"

static void release(void* context) { tesseraGoRelease((uintptr_t)context); }

static int32_t read_at(void* context, int64_t offset, void* out, size_t bytes) {
  return tesseraGoReadAt((uintptr_t)context, offset, out, bytes);
}

/* Where nothing lies: an empty array of Go has no address, which is not the same as NULL here. */
static const char nothing = 0;

uintptr_t tessera_go_tensor_borrow(int32_t dtype, int32_t rank, const int64_t* dims, const void* data,
                                   size_t bytes, uintptr_t context, uintptr_t* out) {
  tsr_tensor* made = NULL;
  tsr_status* status = tsr_tensor_borrow(dtype, rank, dims, bytes > 0 ? data : &nothing, bytes, release,
                                         (void*)context, &made);
  *out = (uintptr_t)made;
  return (uintptr_t)status;
}

uintptr_t tessera_go_model_load_bytes(const void* data, size_t size, uintptr_t context, uintptr_t* out) {
  tsr_model* made = NULL;
  tsr_status* status = tsr_model_load_bytes(size > 0 ? data : &nothing, size, release, (void*)context, &made);
  *out = (uintptr_t)made;
  return (uintptr_t)status;
}

uintptr_t tessera_go_model_load_reader(int64_t size, uintptr_t context, uintptr_t* out) {
  tsr_model* made = NULL;
  const tsr_reader reader = {sizeof reader, (void*)context, size, read_at, release};
  tsr_status* status = tsr_model_load_reader(&reader, &made);
  *out = (uintptr_t)made;
  return (uintptr_t)status;
}

static void write_log(void* context, int32_t level, const char* text) {
  tesseraGoLog((uintptr_t)context, level, (char*)text);
}

uintptr_t tessera_go_runtime_set_log(uintptr_t runtime, uintptr_t context) {
  return (uintptr_t)tsr_runtime_set_log((tsr_runtime*)runtime, context ? write_log : NULL, context ? release : NULL,
                                        (void*)context);
}

static void* allocate(void* context, size_t bytes, size_t alignment) {
  return tesseraGoAllocate((uintptr_t)context, bytes, alignment);
}
static void deallocate(void* context, void* memory, size_t bytes) {
  tesseraGoDeallocate((uintptr_t)context, memory, bytes);
}
static void thread_started(void* context, const char* role, int32_t number) {
  tesseraGoThreadStarted((uintptr_t)context, (char*)role, number);
}

/* has: bits 1, 2 and 4 for the three functions that there are. */
uintptr_t tessera_go_runtime_new_with_hooks(uintptr_t options, uintptr_t context, int32_t has, uintptr_t* out) {
  tsr_runtime* made = NULL;
  const tsr_hooks hooks = {sizeof hooks,
                           (void*)context,
                           has & 1 ? allocate : NULL,
                           has & 2 ? deallocate : NULL,
                           has & 4 ? thread_started : NULL,
                           release};
  tsr_status* status = tsr_runtime_new_with_hooks((const tsr_options*)options, &hooks, &made);
  *out = (uintptr_t)made;
  return (uintptr_t)status;
}

void* tessera_go_memory_new(size_t size) { return calloc(size > 0 ? size : 1, 1); }
void tessera_go_memory_free(void* memory) { free(memory); }
