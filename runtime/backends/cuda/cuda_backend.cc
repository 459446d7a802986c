// The backend's table: devices, memory, streams, kernels, communicators and whole steps as CUDA graphs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/backend_table.h"
#include "runtime/backends/cuda/collective_kernels.h"
#include "runtime/backends/cuda/communicator.h"
#include "runtime/backends/cuda/copies.h"
#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/cuda_status.h"
#ifdef TSR_CUDNN
#include "runtime/backends/cuda/dnn_library.h"
#endif
#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"
#include "runtime/backends/cuda/kernels/lt_choices.h"
#include "runtime/backends/cuda/kernels/overlap.h"
#include "runtime/backends/cuda/library.h"
#include "runtime/backends/cuda/memory.h"
#include "runtime/backends/cuda/notes.h"
#include "runtime/backends/cuda/rates.h"
#include "runtime/backends/cuda/scoped_device.h"

using tessera::Result;
using tessera::Status;
using tessera::StatusCode;
using namespace tessera::cuda;  // NOLINT: this file is the backend's table

struct tsr_abi_device {
  const tsr_host_api* host;
  int32_t ordinal;
};
struct tsr_abi_stream {
  tsr_abi_device* device;
  cudaStream_t stream;
  bool may_overlap = false;  // what was issued last is a kernel that the next may overlap with
  // The stream, for work that does not overlap.
  cudaStream_t then() {
    may_overlap = false;
    return stream;
  }
};
struct tsr_abi_event {
  tsr_abi_device* device;
  cudaEvent_t event;
  bool is_timed;
};
struct tsr_abi_kernel {
  std::unique_ptr<Kernel> kernel;
};
struct tsr_abi_comm {
  std::unique_ptr<Communicator> end;
};

namespace {

tessera::BackendErrors g_errors;
template <class Body>
tsr_abi_error* guarded(Body&& body) {
  return g_errors.guarded(body);
}

// ---- device

tsr_abi_error* device_info(int32_t ordinal, tsr_abi_device_info* out) {
  return guarded([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const Rates rates, device_rates(ordinal));
    std::snprintf(out->name, sizeof(out->name), "%s (sm_%d%d, %d multiprocessors)", rates.name, rates.major,
                  rates.minor, rates.multiprocessors);
    out->memory_bytes = rates.memory_bytes;
    out->matmul_flops_per_s = rates.matmul_flops_per_s;
    out->memory_bytes_per_s = rates.memory_bytes_per_s;
    out->launch_s = rates.launch_s;
    out->link_bytes_per_s = rates.link_bytes_per_s;
    out->link_latency_s = rates.link_latency_s;
    out->shared_cores = 0;
    if (out->struct_size >= sizeof(tsr_abi_device_info)) {
      out->host_link_bytes_per_s = rates.host_link_bytes_per_s;
      out->host_link_latency_s = rates.host_link_latency_s;
    }
    return {};
  });
}

tsr_abi_error* device_open(const tsr_host_api* host, int32_t ordinal, tsr_abi_device** out) {
  return guarded([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const Rates rates, device_rates(ordinal));
    const ScopedDevice current(ordinal);
    TSR_RETURN_IF_ERROR(from_cuda(cudaFree(nullptr), "starting the device's context"));
    if (const cudaError_t error = find_kernels(); error != cudaSuccess) {
      (void)cudaGetLastError();  // not sticky: the next call starts clean
      return Status(
          StatusCode::kUnsupported,
          tessera::format("{}: no kernels for compute capability {}.{} ({}): build libtessera_cuda with "
                          "-DCMAKE_CUDA_ARCHITECTURES={}{}",
                          rates.name, rates.major, rates.minor, cudaGetErrorName(error), rates.major,
                          rates.minor));
    }
    *out = new tsr_abi_device{host, ordinal};
    return {};
  });
}
void device_close(tsr_abi_device* device) { delete device; }

// ---- memory

tsr_abi_error* memory_alloc(tsr_abi_device* device, int32_t tier, int64_t bytes, uint32_t flags, void** out) {
  return guarded([&]() -> Status {
    const ScopedDevice current(device->ordinal);
    TSR_ASSIGN_OR_RETURN(*out, tessera::cuda::memory_alloc(tier, bytes, (flags & TSR_ALLOC_GUARDED) != 0));
    return {};
  });
}

void memory_free(tsr_abi_device* device, int32_t tier, void* memory, int64_t bytes) {
  const Status status = tessera::catch_status([&] {
    const ScopedDevice current(device->ordinal);
    return tessera::cuda::memory_free(tier, memory, bytes);
  });
  if (!status.ok() && device->host->log != nullptr)
    device->host->log(device->host->host, 3, std::string(status.message()).c_str());
}

tsr_abi_error* memory_info(tsr_abi_device* device, tsr_abi_memory_info* out) {
  return guarded([&]() -> Status {
    const ScopedDevice current(device->ordinal);
    size_t available = 0, total = 0;
    TSR_RETURN_IF_ERROR(from_cuda(cudaMemGetInfo(&available, &total), "cudaMemGetInfo"));
    out->total_bytes = static_cast<int64_t>(total);
    out->used_bytes = static_cast<int64_t>(total - available);
    return {};
  });
}

// ---- streams and events

tsr_abi_error* stream_create(tsr_abi_device* device, tsr_abi_stream** out) {
  return guarded([&]() -> Status {
    const ScopedDevice current(device->ordinal);
    cudaStream_t stream = nullptr;
    TSR_RETURN_IF_ERROR(from_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"));
    *out = new tsr_abi_stream{device, stream};
    return {};
  });
}
void stream_destroy(tsr_abi_stream* stream) {
  (void)cudaStreamDestroy(stream->stream);
  delete stream;
}
tsr_abi_error* stream_synchronize(tsr_abi_stream* stream) {
  return guarded([&] {
    const ScopedDevice current(stream->device->ordinal);
    return from_cuda(cudaStreamSynchronize(stream->stream), "waiting for a stream");
  });
}

tsr_abi_error* event_create(tsr_abi_device* device, tsr_abi_event** out) {
  return guarded([&]() -> Status {
    const ScopedDevice current(device->ordinal);
    cudaEvent_t event = nullptr;
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event"));
    *out = new tsr_abi_event{device, event, false};
    return {};
  });
}
tsr_abi_error* timed_event_create(tsr_abi_device* device, tsr_abi_event** out) {
  return guarded([&]() -> Status {
    const ScopedDevice current(device->ordinal);
    cudaEvent_t event = nullptr;
    TSR_RETURN_IF_ERROR(from_cuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "an event"));
    *out = new tsr_abi_event{device, event, true};
    return {};
  });
}
void event_destroy(tsr_abi_event* event) {
  (void)cudaEventDestroy(event->event);
  delete event;
}
tsr_abi_error* event_record(tsr_abi_event* event, tsr_abi_stream* stream) {
  return guarded([&] {
    const ScopedDevice current(stream->device->ordinal);
    unsigned flags = cudaEventRecordDefault;
    if (event->is_timed) {  // else a capture makes it an edge of its graph, which has no time
      cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
      (void)cudaStreamIsCapturing(stream->stream, &capture);
      if (capture == cudaStreamCaptureStatusActive) flags = cudaEventRecordExternal;
    }
    return from_cuda(cudaEventRecordWithFlags(event->event, stream->then(), flags), "recording an event");
  });
}
tsr_abi_error* event_elapsed(tsr_abi_event* begin, tsr_abi_event* end, int64_t* out_ns) {
  return guarded([&]() -> Status {
    const ScopedDevice current(begin->device->ordinal);
    float milliseconds = 0;
    TSR_RETURN_IF_ERROR(
        from_cuda(cudaEventElapsedTime(&milliseconds, begin->event, end->event), "reading events"));
    *out_ns = static_cast<int64_t>(1e6 * static_cast<double>(milliseconds));
    return {};
  });
}
tsr_abi_error* stream_wait(tsr_abi_stream* stream, tsr_abi_event* event) {
  return guarded([&] {
    const ScopedDevice current(stream->device->ordinal);
    return from_cuda(cudaStreamWaitEvent(stream->then(), event->event, 0), "waiting for an event");
  });
}

tsr_abi_error* copy(tsr_abi_stream* stream, const void* in, void* out, int64_t rows, int64_t row_bytes,
                    int64_t in_stride_bytes, int64_t out_stride_bytes) {
  return guarded([&] {
    const ScopedDevice current(stream->device->ordinal);
    return from_cuda(copy_rows(stream->then(), in, out, rows, row_bytes, in_stride_bytes, out_stride_bytes),
                     tessera::format("a copy of {} rows of {} bytes", rows, row_bytes));
  });
}
tsr_abi_error* fill(tsr_abi_stream* stream, void* out, int32_t byte, int64_t bytes) {
  return guarded([&]() -> Status {
    if (bytes <= 0) return {};
    const ScopedDevice current(stream->device->ordinal);
    return from_cuda(cudaMemsetAsync(out, byte, static_cast<size_t>(bytes), stream->then()), "a fill");
  });
}

// ---- kernels

Result<tessera::PreparedChoice<PreparedKernel>> choose(const tsr_abi_kernel_desc& desc) {
  TSR_ASSIGN_OR_RETURN(auto choice, tessera::choose_kernel("cuda", kernel_table(), desc));
  const std::string_view words = LtChoices::words(desc.variant);
  const size_t named = words.empty() ? 0 : static_cast<size_t>(std::ranges::count(words, '.')) + 1;
  if (std::string_view(choice.variant).ends_with(':') ||
      (named != 0 && named != choice.prepared.products.size()))
    return Status(StatusCode::kFailedPrecondition,
                  tessera::format("variant '{}' of {} names {} algorithms, it has {} products: plan again",
                                  choice.variant, desc.op, named, choice.prepared.products.size()));
  return choice;
}

tsr_abi_error* kernel_query(int32_t ordinal, const tsr_abi_kernel_desc* desc, tsr_abi_kernel_info* out) {
  return guarded([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(Rates rates, device_rates(ordinal));
    const ScopedDevice current(ordinal);
    TSR_ASSIGN_OR_RETURN(const auto choice, choose(*desc));
    rates.launch_s *= choice.prepared.kernel->launch_share();
    return tessera::answer_query(choice, rates, *out);
  });
}

void log_notes(const tsr_host_api& host) {
  if (host.log == nullptr) return;
  for (const std::string& line : take_notes()) host.log(host.host, 2, line.c_str());
}

tsr_abi_error* kernel_prepare(tsr_abi_device* device, const tsr_abi_kernel_desc* desc, tsr_abi_kernel** out) {
  return guarded([&]() -> Status {
    const ScopedDevice current(device->ordinal);
    TSR_ASSIGN_OR_RETURN(auto choice, choose(*desc));
    if (choice.prepared.compile) TSR_RETURN_IF_ERROR(choice.prepared.compile());
    log_notes(*device->host);
    *out = new tsr_abi_kernel{std::move(choice.prepared.kernel)};
    return {};
  });
}
void kernel_destroy(tsr_abi_kernel* kernel) { delete kernel; }

tsr_abi_error* kernel_tune(tsr_abi_device* device, const tsr_abi_kernel_desc* desc,
                           tsr_abi_kernel_info* out) {
  return guarded([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const Rates rates, device_rates(device->ordinal));
    const ScopedDevice current(device->ordinal);
    TSR_ASSIGN_OR_RETURN(auto choice, choose(*desc));
    std::string variant(choice.variant.substr(0, choice.variant.find(':')));
    for (const auto& product : choice.prepared.products) {
      TSR_ASSIGN_OR_RETURN(const std::string word, product->fastest());
      variant += (&product == choice.prepared.products.data() ? ':' : '.') + word;
    }
    choice.variant = variant;
    return tessera::answer_query(choice, rates, *out);
  });
}

// TESSERA_CUDA_OVERLAP=0: every kernel begins when the one before it has ended.
bool may_overlap() {
  static const bool is_off = [] {
    const char* value = std::getenv("TESSERA_CUDA_OVERLAP");
    return value != nullptr && std::string_view(value) == "0";
  }();
  return !is_off;
}

tsr_abi_error* kernel_launch(tsr_abi_kernel* kernel, tsr_abi_stream* stream, const void* const* inputs,
                             void* const* outputs, void* workspace) {
  return guarded([&]() -> Status {
    const ScopedDevice current(stream->device->ordinal);
    Overlap overlap{.with_previous = stream->may_overlap && may_overlap()};
    const Status issued =
        kernel->kernel->launch(LaunchArgs{inputs, outputs, workspace, stream->then(), &overlap});
    const Status launched = from_cuda(cudaGetLastError(), "a launch");
    if (!issued.ok()) return issued;
    TSR_RETURN_IF_ERROR(launched);
    stream->may_overlap = overlap.with_next;
    return {};
  });
}

tsr_abi_error* kernel_fuse(tsr_abi_device* device, const tsr_abi_launch* launches, int32_t count,
                           int32_t* taken, tsr_abi_kernel** out) {
  return guarded([&]() -> Status {
    *taken = 0;
    *out = nullptr;
    if (count < 2 || !launches[0].kernel->kernel->fuses()) return {};
    const ScopedDevice current(device->ordinal);
    std::vector<ComingLaunch> coming;
    for (int32_t i = 0; i < count; ++i)
      coming.push_back({launches[i].kernel->kernel.get(),
                        LaunchArgs{launches[i].inputs, launches[i].outputs, launches[i].workspace, nullptr}});
    Fused fused = coming[0].kernel->fuse(coming);
    if (fused.kernel == nullptr) return {};
    *out = new tsr_abi_kernel{std::move(fused.kernel)};
    *taken = fused.taken;
    return {};
  });
}

uint64_t kernel_fingerprint(int32_t ordinal) {
  constexpr int32_t kEstimateVersion = 3;
  std::string basis;
  size_t dnn_version = 0;
#ifdef TSR_CUDNN
  if (const Result<const Dnn*> library = dnn(); library.ok()) dnn_version = (*library)->version();
#endif
  (void)tessera::catch_status([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const Rates rates, device_rates(ordinal));
    const Result<const CublasLt*> lt = cublas_lt();
    basis = tessera::format("{} {} {} {} {} {} {}", kEstimateVersion, rates.name, rates.multiprocessors,
                            rates.matmul_flops_per_s, rates.memory_bytes_per_s,
                            lt.ok() ? (*lt)->version() : size_t{0}, dnn_version);
    return {};
  });
  return tessera::table_fingerprint(basis, kernel_table());
}

// ---- communicators

tsr_abi_error* comm_create_for(tsr_abi_device* const* devices, int32_t count, const tsr_abi_comm_use* use,
                               tsr_abi_comm** out) {
  return guarded([&]() -> Status {
    if (count < 1)
      return Status(StatusCode::kInvalidArgument, tessera::format("a group of {} members", count));
    std::vector<int32_t> ordinals;
    for (int32_t i = 0; i < count; ++i) ordinals.push_back(devices[i]->ordinal);
    TSR_ASSIGN_OR_RETURN(auto ends, Communicator::create(ordinals, use));
    log_notes(*devices[0]->host);
    std::vector<std::unique_ptr<tsr_abi_comm>> made;
    for (auto& end : ends) made.push_back(std::make_unique<tsr_abi_comm>(std::move(end)));
    for (int32_t i = 0; i < count; ++i) out[i] = made[static_cast<size_t>(i)].release();
    return {};
  });
}
tsr_abi_error* comm_create(tsr_abi_device* const* devices, int32_t count, tsr_abi_comm** out) {
  return comm_create_for(devices, count, nullptr, out);
}
void comm_destroy(tsr_abi_comm* comm) { delete comm; }

// A member's own device is current while it issues.
template <class Body>
tsr_abi_error* on_member(tsr_abi_comm* comm, Body&& body) {
  return guarded([&] {
    const ScopedDevice current(comm->end->ordinal());
    return body(*comm->end);
  });
}

tsr_abi_error* comm_collective(tsr_abi_comm* comm, tsr_abi_stream* stream, const tsr_abi_collective* what,
                               const void* in, void* out) {
  return on_member(comm, [&](Communicator& end) { return end.collective(stream->then(), *what, in, out); });
}
tsr_abi_error* comm_send(tsr_abi_comm* comm, tsr_abi_stream* stream, int32_t peer, const void* in,
                         int64_t bytes) {
  return on_member(comm, [&](Communicator& end) { return end.send(stream->then(), peer, in, bytes); });
}
tsr_abi_error* comm_recv(tsr_abi_comm* comm, tsr_abi_stream* stream, int32_t peer, void* out, int64_t bytes) {
  return on_member(comm, [&](Communicator& end) { return end.receive(stream->then(), peer, out, bytes); });
}
tsr_abi_error* comm_group_begin(tsr_abi_comm* comm) {
  return on_member(comm, [&](Communicator& end) { return end.begin_exchange(); });
}
tsr_abi_error* comm_group_end(tsr_abi_comm* comm, tsr_abi_stream* stream) {
  return on_member(comm, [&](Communicator& end) { return end.end_exchange(stream->then()); });
}
void comm_abort(tsr_abi_comm* comm) { comm->end->abort(); }
void comm_counters(tsr_abi_comm* comm, tsr_abi_comm_counters* out) {
  tessera::copy_counters(comm->end->counters(), out);
}

// ---- whole steps as one launch

tsr_abi_error* capture_begin(tsr_abi_stream* stream) {
  return guarded([&] {
    const ScopedDevice current(stream->device->ordinal);
    return from_cuda(cudaStreamBeginCapture(stream->then(), cudaStreamCaptureModeThreadLocal), "a capture");
  });
}
tsr_abi_error* capture_end(tsr_abi_stream* stream, void** out_graph) {
  return guarded([&]() -> Status {
    const ScopedDevice current(stream->device->ordinal);
    cudaGraph_t graph = nullptr;
    TSR_RETURN_IF_ERROR(from_cuda(cudaStreamEndCapture(stream->then(), &graph), "the end of a capture"));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    (void)cudaGraphDestroy(graph);
    TSR_RETURN_IF_ERROR(from_cuda(error, "cudaGraphInstantiate"));
    // Upload now: a first launch that allocates would wait for kernels of NCCL on devices that reach this
    // one, and they for this launch.
    Status uploaded = from_cuda(cudaGraphUpload(executable, stream->stream), "cudaGraphUpload");
    if (uploaded.ok()) uploaded = from_cuda(cudaStreamSynchronize(stream->stream), "cudaGraphUpload");
    if (!uploaded.ok()) {
      (void)cudaGraphExecDestroy(executable);
      return uploaded;
    }
    *out_graph = executable;
    return {};
  });
}
tsr_abi_error* replay(tsr_abi_stream* stream, void* graph) {
  return guarded([&] {
    const ScopedDevice current(stream->device->ordinal);
    return from_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream->then()), "a replay");
  });
}
void graph_destroy(void* graph) {
  if (graph != nullptr) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

constexpr tsr_backend_api kApi = {
    .struct_size = sizeof(tsr_backend_api),
    .name = "cuda",
    .abi_version = 1,
    .unavailable_reason = tessera::cuda::unavailable_reason,
    .device_count = tessera::cuda::device_count,
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
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .graph_destroy = graph_destroy,
    .comm_group_begin = comm_group_begin,
    .comm_group_end = comm_group_end,
    .flags = TSR_BACKEND_FUSES,
    .comm_perturb = nullptr,
    .kernel_fuse = kernel_fuse,
    .kernel_tune = kernel_tune,
    .timed_event_create = timed_event_create,
    .event_elapsed = event_elapsed,
    .memory_info = memory_info,
    .comm_create_for = comm_create_for,
    .weight_arrange = nullptr,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const tsr_backend_api* tsr_backend_v1(
    const tsr_host_api* host) {
  g_errors.keep(*host);
  return &kApi;
}
