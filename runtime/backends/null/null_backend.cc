#include "runtime/backends/null/null_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/backend_collective.h"
#include "runtime/backend_table.h"

using tessera::DType;
using tessera::format;
using tessera::KernelSpec;
using tessera::Status;
using tessera::StatusCode;

// ---- 1. The opaque types of the ABI. A backend defines each as it likes.

struct tsr_abi_device {
  const tsr_host_api* host;
  int32_t ordinal;
  int64_t used_bytes = 0;  // of device memory
};
struct tsr_abi_stream {
  tsr_abi_device* device;
  double clock_s = 0;  // invented time at which everything issued so far is done
};
struct tsr_abi_event {
  double clock_s = 0;
};
struct tsr_abi_kernel {
  std::string op;
  double seconds;
};
struct tsr_abi_comm {
  int32_t position;
  std::atomic<bool> aborted{false};
  tsr_abi_comm_counters counters{};
};

namespace {

// ---- 2. Errors: everything that may throw or fail goes through `guarded`; the only thing that crosses the
// ABI is a table entry made by the host. The entry's host is kept for the calls that have no device.

tessera::BackendErrors g_errors;
template <class Body>
tsr_abi_error* guarded(Body&& body) {
  return g_errors.guarded(body);
}

// ---- 3. The device: how many there are, what they can do, opening and closing.

constexpr double kFlopsPerSecond = 100e12, kBytesPerSecond = 1e12, kLaunchSeconds = 5e-6;
constexpr double kLinkBytesPerSecond = 100e9, kLinkLatencySeconds = 10e-6;
constexpr int64_t kMemoryBytes = int64_t{80} << 30;

const char* unavailable_reason() { return nullptr; }  // a real backend looks for its driver here
int32_t device_count() { return INT32_MAX; }          // virtual devices

tsr_abi_error* device_info(int32_t, tsr_abi_device_info* out) {
  std::snprintf(out->name, sizeof(out->name), "null");
  out->memory_bytes = kMemoryBytes;
  out->matmul_flops_per_s = kFlopsPerSecond;
  out->memory_bytes_per_s = kBytesPerSecond;
  out->launch_s = kLaunchSeconds;
  out->link_bytes_per_s = kLinkBytesPerSecond;
  out->link_latency_s = kLinkLatencySeconds;
  out->shared_cores = 0;
  return nullptr;
}

tsr_abi_error* device_open(const tsr_host_api* host, int32_t ordinal, tsr_abi_device** out) {
  return guarded([&] {
    *out = new tsr_abi_device{host, ordinal};
    return Status();
  });
}
void device_close(tsr_abi_device* device) { delete device; }

// ---- 4. Memory: addresses without memory behind them, as a device's are to the host: touching one is a
// fault.

tsr_abi_error* memory_alloc(tsr_abi_device* device, int32_t tier, int64_t bytes, uint32_t, void** out) {
  return guarded([&]() -> Status {
    void* memory = mmap(nullptr, static_cast<size_t>(std::max<int64_t>(bytes, 1)), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return Status(StatusCode::kOutOfMemory, format("no {} of addresses", tessera::bytes_text(bytes)));
    *out = memory;
    if (tier == 0) device->used_bytes += bytes;
    return {};
  });
}
void memory_free(tsr_abi_device* device, int32_t tier, void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  munmap(memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (tier == 0) device->used_bytes -= bytes;
}
tsr_abi_error* memory_info(tsr_abi_device* device, tsr_abi_memory_info* out) {
  out->total_bytes = kMemoryBytes;
  out->used_bytes = device->used_bytes;
  return nullptr;
}

// ---- 5. Streams and events: order and time.

void advance(tsr_abi_stream* stream, const std::string& what, double seconds) {
  stream->clock_s += seconds;
  const tsr_host_api& host = *stream->device->host;
  host.log(host.host, 0,
           format("null:{} {} done at {} us", stream->device->ordinal, what, stream->clock_s * 1e6).c_str());
}

tsr_abi_error* stream_create(tsr_abi_device* device, tsr_abi_stream** out) {
  return guarded([&] {
    *out = new tsr_abi_stream{device};
    return Status();
  });
}
void stream_destroy(tsr_abi_stream* stream) { delete stream; }
tsr_abi_error* stream_synchronize(tsr_abi_stream*) { return nullptr; }
tsr_abi_error* event_create(tsr_abi_device*, tsr_abi_event** out) {
  return guarded([&] {
    *out = new tsr_abi_event;
    return Status();
  });
}
void event_destroy(tsr_abi_event* event) { delete event; }
tsr_abi_error* event_record(tsr_abi_event* event, tsr_abi_stream* stream) {
  event->clock_s = stream->clock_s;
  return nullptr;
}
tsr_abi_error* event_elapsed(tsr_abi_event* begin, tsr_abi_event* end, int64_t* out_ns) {
  *out_ns = std::llround(1e9 * (end->clock_s - begin->clock_s));
  return nullptr;
}
tsr_abi_error* stream_wait(tsr_abi_stream* stream, tsr_abi_event* event) {
  stream->clock_s = std::max(stream->clock_s, event->clock_s);
  return nullptr;
}

// Fetching from a null device leaves the destination unchanged.
tsr_abi_error* copy(tsr_abi_stream* stream, const void*, void*, int64_t rows, int64_t row_bytes, int64_t,
                    int64_t) {
  return guarded([&] {
    const int64_t bytes = rows * row_bytes;
    advance(stream, format("copy {} bytes", bytes), static_cast<double>(bytes) / kBytesPerSecond);
    return Status();
  });
}
tsr_abi_error* fill(tsr_abi_stream* stream, void*, int32_t, int64_t bytes) {
  return guarded([&] {
    advance(stream, format("fill {} bytes", bytes), static_cast<double>(bytes) / kBytesPerSecond);
    return Status();
  });
}

// ---- 6. Kernels: `query` answers from shapes, `prepare` decides everything, `launch` only launches. Here
// every op has one variant, which reads and writes its operands once. A real backend searches a table of its
// kernels, best first, and honours `desc->variant` (backend_table.h's choose_kernel).

double seconds_of(const KernelSpec& spec) {
  double bytes = 0;
  const auto add = [&](const tsr_abi_tensor& tensor) {
    const tessera::DTypeInfo& type = tessera::info(static_cast<DType>(tensor.dtype));
    bytes += static_cast<double>(KernelSpec::elements(tensor)) * type.block_bytes / type.block_elements;
  };
  for (int i = 0; i < spec.input_count(); ++i) add(spec.input(i));
  for (int i = 0; i < spec.output_count(); ++i) add(spec.output(i));
  return bytes / kBytesPerSecond + kLaunchSeconds;
}

Status check_variant(const tsr_abi_kernel_desc& desc) {
  if (desc.variant == nullptr || std::string_view(desc.variant) == "null") return {};
  return Status(StatusCode::kUnsupported,
                format("the null backend has no variant '{}' of '{}'", desc.variant, desc.op));
}

tsr_abi_error* kernel_query(int32_t, const tsr_abi_kernel_desc* desc, tsr_abi_kernel_info* out) {
  return guarded([&]() -> Status {
    TSR_RETURN_IF_ERROR(check_variant(*desc));
    std::snprintf(out->variant, sizeof(out->variant), "null");
    out->workspace_bytes = 0;
    out->seconds = seconds_of(KernelSpec(*desc));
    return {};
  });
}
tsr_abi_error* kernel_prepare(tsr_abi_device*, const tsr_abi_kernel_desc* desc, tsr_abi_kernel** out) {
  return guarded([&]() -> Status {
    TSR_RETURN_IF_ERROR(check_variant(*desc));
    *out = new tsr_abi_kernel{desc->op, seconds_of(KernelSpec(*desc))};
    return {};
  });
}
void kernel_destroy(tsr_abi_kernel* kernel) { delete kernel; }
tsr_abi_error* kernel_launch(tsr_abi_kernel* kernel, tsr_abi_stream* stream, const void* const*, void* const*,
                             void*) {
  return guarded([&] {
    advance(stream, kernel->op, kernel->seconds);
    return Status();
  });
}
uint64_t kernel_fingerprint(int32_t) { return 1; }  // raise it when an answer of kernel_query changes

// ---- 7. Communicators: nobody waits, bytes are counted as a ring would move them.

tsr_abi_error* comm_create(tsr_abi_device* const*, int32_t count, tsr_abi_comm** out) {
  return guarded([&] {
    for (int32_t i = 0; i < count; ++i) out[i] = nullptr;
    for (int32_t i = 0; i < count; ++i) {
      out[i] = new tsr_abi_comm;
      out[i]->position = i;
    }
    return Status();
  });
}
void comm_destroy(tsr_abi_comm* comm) { delete comm; }

Status count(tsr_abi_comm* comm, tsr_abi_stream* stream, int32_t kind, int64_t bytes) {
  if (comm->aborted) return Status(StatusCode::kAborted, "the communicator was aborted");
  tessera::count_message(comm->counters, kind, bytes);
  advance(stream, format("collective {} moves {} bytes", kind, bytes),
          static_cast<double>(bytes) / kLinkBytesPerSecond + kLinkLatencySeconds);
  return {};
}

tsr_abi_error* comm_collective(tsr_abi_comm* comm, tsr_abi_stream* stream, const tsr_abi_collective* what,
                               const void*, void*) {
  return guarded([&] { return count(comm, stream, what->kind, tessera::ring_bytes(*what, comm->position)); });
}
tsr_abi_error* comm_send(tsr_abi_comm* comm, tsr_abi_stream* stream, int32_t, const void*, int64_t bytes) {
  return guarded([&] { return count(comm, stream, tessera::kSend, bytes); });
}
tsr_abi_error* comm_recv(tsr_abi_comm* comm, tsr_abi_stream* stream, int32_t, void*, int64_t) {
  return guarded([&] { return count(comm, stream, tessera::kReceive, 0); });
}
void comm_abort(tsr_abi_comm* comm) { comm->aborted = true; }
void comm_counters(tsr_abi_comm* comm, tsr_abi_comm_counters* out) {
  tessera::copy_counters(comm->counters, out);
}
tsr_abi_error* comm_group_begin(tsr_abi_comm*) { return nullptr; }
tsr_abi_error* comm_group_end(tsr_abi_comm*, tsr_abi_stream*) { return nullptr; }

// ---- 8. The table. Optional functions may be null.

constexpr tsr_backend_api kApi = {
    .struct_size = sizeof(tsr_backend_api),
    .name = "null",
    .abi_version = 1,
    .unavailable_reason = unavailable_reason,
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .stream_wait = stream_wait,
    .copy = copy,
    .fill = fill,
    .kernel_query = kernel_query,
    .kernel_prepare = kernel_prepare,
    .kernel_destroy = kernel_destroy,
    .kernel_launch = kernel_launch,
    .kernel_fingerprint = kernel_fingerprint,
    .comm_create = comm_create,
    .comm_destroy = comm_destroy,
    .comm_collective = comm_collective,
    .comm_send = comm_send,
    .comm_recv = comm_recv,
    .comm_abort = comm_abort,
    .comm_counters = comm_counters,
    .capture_begin = nullptr,
    .capture_end = nullptr,
    .replay = nullptr,
    .graph_destroy = nullptr,
    .comm_group_begin = comm_group_begin,
    .comm_group_end = comm_group_end,
    .flags = 0,
    .comm_perturb = nullptr,
    .kernel_fuse = nullptr,
    .kernel_tune = nullptr,
    .timed_event_create = event_create,  // all of them know the time
    .event_elapsed = event_elapsed,
    .memory_info = memory_info,
    .comm_create_for = nullptr,
    .weight_arrange = nullptr,
};

}  // namespace

// ---- 9. The entry: built-in backends have a name of their own; a plugin exports `tsr_backend_v1`.
extern "C" const tsr_backend_api* tsr_null_backend_entry(const tsr_host_api* host) {
  g_errors.keep(*host);
  return &kApi;
}
