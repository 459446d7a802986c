/* A backend in one file, built outside of Tessera's tree against the installed <tessera/backend.h>: devices "sample:1",
 * "sample:2", ... in the memory of the host, whose only kernel is relu in f32.
 *
 *   cc -std=c11 -shared -fPIC -fvisibility=hidden sample_backend.c $(pkg-config --cflags tessera) -o libtessera_sample.so
 *
 * The option plugin_path of tsr_runtime_new names its folder. docs/guides/add-a-backend.md has the rules of each function;
 * errors that allocate nothing are left out here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/backend.h>

/* Codes of make_error: those of tsr_code. */
enum { UNSUPPORTED = 4, OUT_OF_MEMORY = 5 };

struct tsr_abi_device { const tsr_host_api* host; };
struct tsr_abi_stream { tsr_abi_device* device; };
struct tsr_abi_event { int nothing; };
struct tsr_abi_kernel { int64_t elements; };
struct tsr_abi_comm { int nothing; };

static const tsr_host_api* the_host; /* of calls without a device */

static tsr_abi_error* error(int32_t code, const char* message) { return the_host->make_error(the_host->host, code, message); }
static tsr_abi_error* no_memory(void) { return error(OUT_OF_MEMORY, "sample: no memory"); }

/* Devices: virtual, as many as are asked for. */
static const char* unavailable_reason(void) { return NULL; } /* a real backend looks for its driver */
static int32_t device_count(void) { return INT32_MAX; }
static tsr_abi_error* device_info(int32_t ordinal, tsr_abi_device_info* out) {
  (void)ordinal;
  snprintf(out->name, sizeof out->name, "sample");
  out->memory_bytes = (int64_t)1 << 30;
  out->matmul_flops_per_s = 1e9;
  out->memory_bytes_per_s = 1e9;
  out->launch_s = 1e-6;
  out->link_bytes_per_s = 1e9;
  out->link_latency_s = 1e-6;
  return NULL;
}
static tsr_abi_error* device_open(const tsr_host_api* host, int32_t ordinal, tsr_abi_device** out) {
  (void)ordinal;
  *out = (tsr_abi_device*)malloc(sizeof **out);
  if (*out == NULL) return no_memory();
  (*out)->host = host;
  host->log(host->host, 1, "sample: a device is open");
  return NULL;
}
static void device_close(tsr_abi_device* device) { free(device); }

/* Memory of the host in both tiers. */
static tsr_abi_error* memory_alloc(tsr_abi_device* device, int32_t tier, int64_t bytes, uint32_t flags, void** out) {
  (void)device, (void)tier, (void)flags;
  *out = aligned_alloc(256, ((size_t)bytes + 256) / 256 * 256);
  return *out == NULL ? no_memory() : NULL;
}
static void memory_free(tsr_abi_device* device, int32_t tier, void* memory, int64_t bytes) {
  (void)device, (void)tier, (void)bytes;
  free(memory);
}

/* Streams: whatever is issued is done when the function returns (TSR_BACKEND_BLOCKING), so that nothing is waited for. */
static tsr_abi_error* stream_create(tsr_abi_device* device, tsr_abi_stream** out) {
  *out = (tsr_abi_stream*)malloc(sizeof **out);
  if (*out == NULL) return no_memory();
  (*out)->device = device;
  return NULL;
}
static void stream_destroy(tsr_abi_stream* stream) { free(stream); }
static tsr_abi_error* stream_synchronize(tsr_abi_stream* stream) {
  (void)stream;
  return NULL;
}
static tsr_abi_error* event_create(tsr_abi_device* device, tsr_abi_event** out) {
  (void)device;
  *out = (tsr_abi_event*)malloc(sizeof **out);
  return *out == NULL ? no_memory() : NULL;
}
static void event_destroy(tsr_abi_event* event) { free(event); }
static tsr_abi_error* event_record(tsr_abi_event* event, tsr_abi_stream* stream) {
  (void)event, (void)stream;
  return NULL;
}
static tsr_abi_error* stream_wait(tsr_abi_stream* stream, tsr_abi_event* event) {
  (void)stream, (void)event;
  return NULL;
}
static tsr_abi_error* copy(tsr_abi_stream* stream, const void* in, void* out, int64_t rows, int64_t row_bytes,
                           int64_t in_stride_bytes, int64_t out_stride_bytes) {
  (void)stream;
  for (int64_t row = 0; row < rows; ++row) {
    char* to = (char*)out + row * out_stride_bytes;
    if (in == NULL) memset(to, 0, (size_t)row_bytes);
    else memcpy(to, (const char*)in + row * in_stride_bytes, (size_t)row_bytes);
  }
  return NULL;
}
static tsr_abi_error* fill(tsr_abi_stream* stream, void* out, int32_t byte, int64_t bytes) {
  (void)stream;
  memset(out, byte, (size_t)bytes);
  return NULL;
}

/* Kernels: query answers from shapes, prepare decides, launch only launches. Whatever is not relu of f32 is refused, by name. */
static int64_t elements(const tsr_abi_tensor* tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->rank; ++i) count *= tensor->dims[i];
  return count;
}
static tsr_abi_error* check(const tsr_abi_kernel_desc* desc) {
  const int is_variant = desc->variant == NULL || strcmp(desc->variant, "loop") == 0;
  if (strcmp(desc->op, "relu") == 0 && desc->inputs[0].dtype == 0 && is_variant) return NULL;
  char message[160];
  snprintf(message, sizeof message, "sample: found op '%s', wanted relu of f32", desc->op);
  return error(UNSUPPORTED, message);
}
static tsr_abi_error* kernel_query(int32_t ordinal, const tsr_abi_kernel_desc* desc, tsr_abi_kernel_info* out) {
  (void)ordinal;
  tsr_abi_error* refused = check(desc);
  if (refused != NULL) return refused;
  snprintf(out->variant, sizeof out->variant, "loop");
  out->workspace_bytes = 0;
  out->seconds = 1e-6 + 8e-9 * (double)elements(desc->inputs);
  return NULL;
}
static tsr_abi_error* kernel_prepare(tsr_abi_device* device, const tsr_abi_kernel_desc* desc, tsr_abi_kernel** out) {
  (void)device;
  tsr_abi_error* refused = check(desc);
  if (refused != NULL) return refused;
  *out = (tsr_abi_kernel*)malloc(sizeof **out);
  if (*out == NULL) return no_memory();
  (*out)->elements = elements(desc->inputs);
  return NULL;
}
static void kernel_destroy(tsr_abi_kernel* kernel) { free(kernel); }
static tsr_abi_error* kernel_launch(tsr_abi_kernel* kernel, tsr_abi_stream* stream, const void* const* inputs, void* const* outputs,
                                    void* workspace) {
  (void)stream, (void)workspace;
  const float* in = (const float*)inputs[0];
  float* out = (float*)outputs[0];
  for (int64_t i = 0; i < kernel->elements; ++i) out[i] = in[i] > 0 ? in[i] : 0;
  return NULL;
}
static uint64_t kernel_fingerprint(int32_t ordinal) {
  (void)ordinal;
  return 1; /* raise it when an answer of kernel_query changes */
}

/* Communicators: none; every plan is for one device. */
static tsr_abi_error* comm_create(tsr_abi_device* const* devices, int32_t count, tsr_abi_comm** out) {
  (void)devices, (void)count, (void)out;
  return error(UNSUPPORTED, "sample: devices do not talk to one another; wanted sample:1");
}
static void comm_destroy(tsr_abi_comm* comm) { (void)comm; }
static tsr_abi_error* comm_collective(tsr_abi_comm* comm, tsr_abi_stream* stream, const tsr_abi_collective* what, const void* in,
                                      void* out) {
  (void)comm, (void)stream, (void)what, (void)in, (void)out;
  return NULL;
}
static tsr_abi_error* comm_send(tsr_abi_comm* comm, tsr_abi_stream* stream, int32_t peer, const void* in, int64_t bytes) {
  (void)comm, (void)stream, (void)peer, (void)in, (void)bytes;
  return NULL;
}
static tsr_abi_error* comm_recv(tsr_abi_comm* comm, tsr_abi_stream* stream, int32_t peer, void* out, int64_t bytes) {
  (void)comm, (void)stream, (void)peer, (void)out, (void)bytes;
  return NULL;
}
static void comm_abort(tsr_abi_comm* comm) { (void)comm; }
static void comm_counters(tsr_abi_comm* comm, tsr_abi_comm_counters* out) { (void)comm, (void)out; }

static const tsr_backend_api table = {
    .struct_size = sizeof(tsr_backend_api), .name = "sample", .abi_version = 1,
    .unavailable_reason = unavailable_reason, .device_count = device_count, .device_info = device_info,
    .device_open = device_open, .device_close = device_close, .memory_alloc = memory_alloc, .memory_free = memory_free,
    .stream_create = stream_create, .stream_destroy = stream_destroy, .stream_synchronize = stream_synchronize,
    .event_create = event_create, .event_destroy = event_destroy, .event_record = event_record, .stream_wait = stream_wait,
    .copy = copy, .fill = fill, .kernel_query = kernel_query, .kernel_prepare = kernel_prepare,
    .kernel_destroy = kernel_destroy, .kernel_launch = kernel_launch, .kernel_fingerprint = kernel_fingerprint,
    .comm_create = comm_create, .comm_destroy = comm_destroy, .comm_collective = comm_collective, .comm_send = comm_send,
    .comm_recv = comm_recv, .comm_abort = comm_abort, .comm_counters = comm_counters, .flags = TSR_BACKEND_BLOCKING};

/* The one symbol. */
__attribute__((visibility("default"))) const tsr_backend_api* tsr_backend_v1(const tsr_host_api* host);
const tsr_backend_api* tsr_backend_v1(const tsr_host_api* host) {
  the_host = host;
  return &table;
}
