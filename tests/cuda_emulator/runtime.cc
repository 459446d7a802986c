// The CUDA runtime's functions on host memory. Work of a stream runs when somebody waits for it, so that a
// missing event or wait shows as a wrong result. So do copies from and to pageable memory, which "might be
// synchronous" (API synchronization behavior), and then might not.
#include "tests/cuda_emulator/runtime.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/accesses.h"

namespace {

constexpr size_t kPage = 4096;
constexpr int kMostThreads = 1024;

// TESSERA_EMULATED_DEVICE, which the first of them is without it.
struct DeviceKind {
  std::string_view name;
  int major, minor, multiprocessors, most_shared;
};
constexpr DeviceKind kDeviceKinds[] = {
    {"h100", 9, 0, 132, 232448}, {"a100", 8, 0, 108, 166912}, {"l40s", 8, 9, 142, 101376}};
const DeviceKind& device_kind() {
  static const DeviceKind& kind = []() -> const DeviceKind& {
    const char* wanted = std::getenv("TESSERA_EMULATED_DEVICE");
    for (const DeviceKind& each : kDeviceKinds)
      if (wanted == nullptr || each.name == wanted) return each;
    std::fprintf(stderr, "cuda emulator: no device '%s', wanted h100, a100 or l40s\n", wanted);
    std::abort();
  }();
  return kind;
}

std::recursive_mutex g_mutex;
thread_local cudaError_t t_error = cudaSuccess;
thread_local int t_device = 0;
size_t g_overlaps = 0;

struct Allocation {
  size_t bytes, mapped;
  bool on_device;
  int device;
};
constexpr size_t kDeviceBytes = size_t{4} << 30, kContextBytes = size_t{64} << 20;
std::map<const char*, Allocation>& allocations() {
  static std::map<const char*, Allocation> all;
  return all;
}
// What was set of a kernel, on a device.
struct FunctionSettings {
  int set_aside = -1, carveout = -1;
};
FunctionSettings& settings_of(int device, const void* kernel) {
  static std::map<std::pair<int, const void*>, FunctionSettings> all;
  return all[{device, kernel}];
}

// TESSERA_EMULATED_PEERS=none: devices do not reach each other's memory.
bool has_peers() {
  static const bool has = [] {
    const char* text = std::getenv("TESSERA_EMULATED_PEERS");
    return text == nullptr || std::string_view(text) != "none";
  }();
  return has;
}
// While it lives, `device` works: a touch of memory that it does not reach ends the process.
class Reach {
 public:
  explicit Reach(int device) : device_(device) { protect(PROT_NONE); }
  ~Reach() { protect(PROT_READ | PROT_WRITE); }
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

 private:
  void protect(int how) const {
    if (has_peers()) return;
    for (const auto& [at, it] : allocations())
      if (it.on_device && it.device != device_)
        (void)mprotect(const_cast<char*>(at) + it.bytes - it.mapped, it.mapped, how);
  }
  int device_;
};

int device_count() {
  const char* text = std::getenv("TESSERA_EMULATOR_DEVICES");
  return text != nullptr ? std::atoi(text) : 1;
}

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) t_error = error;
  return error;
}

bool is_registered(const void* memory) {
  auto found = allocations().upper_bound(static_cast<const char*>(memory));
  if (found == allocations().begin()) return false;
  --found;
  return static_cast<const char*>(memory) < found->first + found->second.bytes;
}

}  // namespace

// Of a captured graph: what a launch enqueues, and events that it records in passing.
struct GraphItem {
  std::function<void()> work;
  double seconds = 0;
  cudaEvent_t event = nullptr;
  std::function<void(cudaStream_t)> issue = {};  // in place of work
};

namespace {
// Of a capture: how much each of its streams has issued, as far as somebody knows.
using Issued = std::map<const CUstream_st*, uint64_t>;
struct Capture {
  const CUstream_st* origin;
  std::thread::id thread;   // that began it, in the thread's own mode
  bool is_invalid = false;  // something happened that may not happen meanwhile
  bool has_ended = false;
  Issued issued = {};
  std::vector<GraphItem> graph = {};
};
}  // namespace

struct CUstream_st {
  int device = t_device;
  std::deque<std::function<void()>> queue;
  bool ends_in_kernel = false;  // that something may overlap with
  int carveout = -1;            // of that kernel
  uint64_t issued = 0, done = 0;
  double clock_s = 0;                // of all that was issued
  std::shared_ptr<Capture> capture;  // that it belongs to
  Issued awaited;                    // of the capture
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t at = 0;
  std::shared_ptr<Capture> capture;  // recorded in it
  Issued awaited;
  bool has_time = false;
  double clock_s = 0;
};
struct CUgraph_st {
  std::vector<GraphItem> work;
};
struct CUgraphExec_st {
  std::vector<GraphItem> work;
};

namespace {

std::vector<CUstream_st*>& streams() {
  static std::vector<CUstream_st*> all;
  return all;
}
CUstream_st* null_stream() {
  static CUstream_st* stream = [] {
    auto* made = new CUstream_st;
    streams().push_back(made);
    return made;
  }();
  return stream;
}
CUstream_st* stream_of(cudaStream_t stream) { return stream != nullptr ? stream : null_stream(); }

void run_until(CUstream_st* stream, uint64_t position) {
  while (stream->done < position) {
    const std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->done;
    work();
  }
}
void run_all() {
  for (CUstream_st* stream : streams()) run_until(stream, stream->issued);
}

// A call that is illegal while this thread captures (it might wait for what is only recorded), or, of a
// device as a whole, while anybody does. It fails, and so does the capture.
cudaError_t outside_of_captures(const char* call, bool whole_device = false) {
  cudaError_t error = cudaSuccess;
  for (CUstream_st* stream : streams())
    if (stream->capture != nullptr &&
        (whole_device || stream->capture->thread == std::this_thread::get_id())) {
      stream->capture->is_invalid = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  if (error != cudaSuccess) std::fprintf(stderr, "cuda emulator: %s during a capture\n", call);
  return report(error);
}

}  // namespace

namespace emulator {

void enqueue_work(cudaStream_t given, std::function<void()> work, double seconds) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* stream = stream_of(given);
  stream->ends_in_kernel = false;
  // The order in which it was issued is one that its events allow.
  if (stream->capture != nullptr) {
    stream->awaited[stream] = ++stream->capture->issued[stream];
    stream->capture->graph.push_back({std::move(work), seconds});
    return;
  }
  stream->queue.push_back(std::move(work));
  ++stream->issued;
  stream->clock_s += seconds;
}

void issue_to(cudaStream_t given, std::function<void(cudaStream_t)> issue) {
  {
    const std::lock_guard lock(g_mutex);
    CUstream_st* stream = stream_of(given);
    stream->ends_in_kernel = false;
    if (stream->capture != nullptr) {
      stream->awaited[stream] = ++stream->capture->issued[stream];
      stream->capture->graph.push_back({.work = {}, .issue = std::move(issue)});
      return;
    }
  }
  issue(given);
}

void enqueue_meeting(const std::vector<cudaStream_t>& given, std::function<void()> work) {
  struct Meeting {
    std::vector<std::pair<CUstream_st*, uint64_t>> places;  // how much each stream does before it
    std::function<void()> work;
    bool is_over = false;
  };
  const std::lock_guard lock(g_mutex);
  const auto meeting = std::make_shared<Meeting>();
  meeting->work = std::move(work);
  for (const cudaStream_t each : given)
    meeting->places.emplace_back(stream_of(each), stream_of(each)->issued);
  for (const cudaStream_t each : given)
    enqueue_work(each, [meeting, mine = stream_of(each)] {
      if (meeting->is_over) return;
      for (const auto& [stream, position] : meeting->places)
        if (stream != mine) run_until(stream, position);
      meeting->is_over = true;
      meeting->work();
    });
}

size_t most_shared() { return static_cast<size_t>(device_kind().most_shared); }

cudaError_t enqueue(const Config& given, Compiled& compiled, const void* name, std::function<void()> body) {
  const std::lock_guard lock(g_mutex);
  Config config = given;
  const FunctionSettings settings =
      name == nullptr ? FunctionSettings{} : settings_of(stream_of(config.stream)->device, name);
  config.set_aside = settings.set_aside;
  const auto decline = [&](const char* what) {
    std::fprintf(stderr, "cuda emulator: %s: a launch with %s (%u %u %u blocks of %u %u %u, %zu bytes)\n",
                 config.kernel, what, config.blocks.x, config.blocks.y, config.blocks.z, config.threads.x,
                 config.threads.y, config.threads.z, config.shared_bytes);
    return report(cudaErrorInvalidConfiguration);
  };
  if (config.blocks.x == 0 || config.blocks.y == 0 || config.blocks.z == 0 || config.blocks.x > 0x7fffffffu ||
      config.blocks.y > 65535 || config.blocks.z > 65535)
    return decline("an impossible grid");
  if (config.threads.x * config.threads.y * config.threads.z == 0 ||
      config.threads.x * config.threads.y * config.threads.z > kMostThreads)
    return decline("an impossible block");
  if (config.shared_bytes >
      std::max(kMostUnaskedShared, static_cast<size_t>(std::max(settings.set_aside, 0))))
    return decline("more shared memory than was set aside");
  if (config.overlaps && (device_kind().major < 9 || !stream_of(config.stream)->ends_in_kernel))
    return decline("nothing to overlap with");
  // A multiprocessor divides what is shared memory and what cache for all of its blocks, and is empty when it
  // divides anew.
  if (config.overlaps && settings.carveout != stream_of(config.stream)->carveout)
    return decline("another share of shared memory than the kernel that it overlaps with");
  // Kernels are loaded when they are first launched, which may want memory.
  if (!compiled.is_loaded && stream_of(config.stream)->capture != nullptr) {
    stream_of(config.stream)->capture->is_invalid = true;
    std::fprintf(stderr, "cuda emulator: %s is launched for the first time during a capture\n",
                 config.kernel);
    return report(cudaErrorStreamCaptureUnsupported);
  }
  compiled.is_loaded = true;
  constexpr double kSeconds = 1e-6;  // what events say of any kernel
  enqueue_work(
      config.stream,
      [config, body = std::move(body), device = stream_of(config.stream)->device] {
        const Reach reach(device);
        run_kernel(config, body);
      },
      kSeconds);
  stream_of(config.stream)->ends_in_kernel = true;
  stream_of(config.stream)->carveout = settings.carveout;
  g_overlaps += config.overlaps;
  return cudaSuccess;
}

Compiled& compiled(const void* kernel) {
  const std::lock_guard lock(g_mutex);
  static std::map<const void*, Compiled> all;
  return all[kernel];
}

bool is_device_memory(const void* at) { return is_registered(at); }

}  // namespace emulator

extern "C" {

__attribute__((visibility("default"))) size_t tessera_emulated_overlaps() {
  const std::lock_guard lock(g_mutex);
  return g_overlaps;
}
// As if all kernels had been compiled for the device.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = {};
  out->ptxVersion = out->binaryVersion = 10 * device_kind().major + device_kind().minor;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const std::lock_guard lock(g_mutex);
  FunctionSettings& settings = settings_of(t_device, kernel);
  switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      if (value > device_kind().most_shared) return report(cudaErrorInvalidValue);
      settings.set_aside = value;
      return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      if (value < -1 || value > 100) return report(cudaErrorInvalidValue);
      settings.carveout = value;
      return cudaSuccess;
    default: return report(cudaErrorInvalidValue);
  }
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = t_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return report(cudaErrorInvalidDevice);
  t_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  *out = {};
  const char* name = std::getenv("TESSERA_EMULATOR_NAME");
  std::snprintf(out->name, sizeof(out->name), "%s", name != nullptr ? name : "emulated");
  out->major = device_kind().major;
  out->minor = device_kind().minor;
  out->multiProcessorCount = device_kind().multiprocessors;
  out->totalGlobalMem = size_t{4} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 6144; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = device_kind().most_shared; break;
    case cudaDevAttrMultiProcessorCount: *value = device_kind().multiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = device_kind().major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device_kind().minor; break;
    default: *value = 0; return report(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = has_peers() ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return has_peers() ? cudaSuccess : report(cudaErrorPeerAccessUnsupported);
}
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "an error"; }
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local char text[32];
  std::snprintf(text, sizeof(text), "error %d", static_cast<int>(error));
  return text;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = t_error;
  t_error = cudaSuccess;
  return error;
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const std::lock_guard lock(g_mutex);
  size_t used = kContextBytes;
  for (const auto& [at, allocation] : allocations()) used += allocation.on_device ? allocation.bytes : 0;
  *total = kDeviceBytes;
  *available = kDeviceBytes - std::min(used, kDeviceBytes);
  return cudaSuccess;
}

// The end of what was asked for lies against a page that cannot be touched, the start at 256 bytes.
cudaError_t cudaMalloc(void** out, size_t bytes) {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaMalloc"); error != cudaSuccess) return error;
  if (bytes == 0) {
    *out = nullptr;
    return cudaSuccess;
  }
  if (bytes > (size_t{4} << 30)) return report(cudaErrorMemoryAllocation);
  const size_t used = (bytes + 255) / 256 * 256, pages = (used + kPage - 1) / kPage * kPage;
  void* mapped =
      mmap(nullptr, pages + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return report(cudaErrorMemoryAllocation);
  char* usable = static_cast<char*>(mapped) + kPage;
  (void)mprotect(usable, pages, PROT_READ | PROT_WRITE);
  char* at = usable + (pages - used);
  std::memset(at, 0xff, used);
  emulator::forget(usable, pages);
  allocations()[at] = {used, pages, true, t_device};
  *out = at;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  const std::lock_guard lock(g_mutex);
  const cudaError_t error = cudaMalloc(out, bytes);
  if (error == cudaSuccess && *out != nullptr)
    allocations()[static_cast<const char*>(*out)].on_device = false;
  return error;
}
cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaFree"); error != cudaSuccess) return error;
  run_all();
  if (memory == nullptr) return cudaSuccess;
  const auto found = allocations().find(static_cast<const char*>(memory));
  if (found == allocations().end()) return report(cudaErrorInvalidValue);
  const size_t used = found->second.bytes, pages = found->second.mapped;
  emulator::forget(memory, used);
  (void)munmap(static_cast<char*>(memory) - (pages - used) - kPage, pages + 2 * kPage);
  allocations().erase(found);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  const std::lock_guard lock(g_mutex);
  *out = new CUstream_st;
  streams().push_back(*out);
  return cudaSuccess;
}
// The struct stays: events may name it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(g_mutex);
  run_until(stream, stream->issued);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t given) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* stream = stream_of(given);
  if (stream->capture != nullptr) {
    stream->capture->is_invalid = true;
    std::fprintf(stderr, "cuda emulator: a wait for a stream that is captured\n");
    return report(cudaErrorStreamCaptureUnsupported);
  }
  run_until(stream, stream->issued);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaDeviceSynchronize", true); error != cudaSuccess)
    return error;
  run_all();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  *out = new CUevent_st;
  (*out)->has_time = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(g_mutex);
  for (const cudaEvent_t event : {begin, end}) {
    if (!event->has_time || event->stream == nullptr || event->capture != nullptr)
      return report(cudaErrorInvalidResourceHandle);
    if (event->stream->done < event->at) return report(cudaErrorNotReady);
  }
  *milliseconds = static_cast<float>(1e3 * (end->clock_s - begin->clock_s));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t given) {
  const std::lock_guard lock(g_mutex);
  event->stream = stream_of(given);
  event->at = event->stream->issued;
  event->clock_s = event->stream->clock_s;
  event->capture = event->stream->capture;
  event->awaited = event->stream->awaited;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t given, unsigned flags) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* stream = stream_of(given);
  stream->ends_in_kernel = false;
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, given);
  if (stream->capture == nullptr) return report(cudaErrorIllegalState);
  stream->capture->graph.push_back({{}, 0, event});
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t given, cudaStreamCaptureStatus* out) {
  const std::lock_guard lock(g_mutex);
  *out = stream_of(given)->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(g_mutex);
  if (event->stream == nullptr) return cudaSuccess;
  CUstream_st* stream = stream_of(given);
  stream->ends_in_kernel = false;
  if (event->capture != nullptr) {  // joins it
    if (event->capture->has_ended) return report(cudaErrorCapturedEvent);
    if (stream->capture != nullptr && stream->capture != event->capture) {
      stream->capture->is_invalid = event->capture->is_invalid = true;
      return report(cudaErrorStreamCaptureMerge);
    }
    stream->capture = event->capture;
    for (const auto& [other, count] : event->awaited)
      stream->awaited[other] = std::max(stream->awaited[other], count);
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    stream->capture->is_invalid = true;
    return report(cudaErrorStreamCaptureIsolation);
  }
  emulator::enqueue_work(given, [stream = event->stream, at = event->at] { run_until(stream, at); });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaEventSynchronize"); error != cudaSuccess)
    return error;
  if (event->capture != nullptr) return report(cudaErrorCapturedEvent);
  if (event->stream != nullptr) run_until(event->stream, event->at);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* out, size_t out_pitch, const void* in, size_t in_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  const std::lock_guard lock(g_mutex);
  if (height > 1 && (width > out_pitch || width > in_pitch)) return report(cudaErrorInvalidValue);
  const auto work = [=, device = stream_of(stream)->device] {
    const Reach reach(device);
    for (size_t row = 0; row < height; ++row)
      std::memmove(static_cast<char*>(out) + row * out_pitch, static_cast<const char*>(in) + row * in_pitch,
                   width);
  };
  if (!is_registered(in) || !is_registered(out))
    if (const std::shared_ptr<Capture>& capture = stream_of(stream)->capture; capture != nullptr) {
      capture->is_invalid = true;
      std::fprintf(stderr, "cuda emulator: a capture of a copy from or to pageable memory\n");
      return report(cudaErrorStreamCaptureUnsupported);
    }
  emulator::enqueue_work(stream, work);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* out, const void* in, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(out, bytes, in, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy(void* out, const void* in, size_t bytes, cudaMemcpyKind) {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaMemcpy"); error != cudaSuccess) return error;
  run_until(null_stream(), null_stream()->issued);
  std::memmove(out, in, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* out, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  const std::lock_guard lock(g_mutex);
  if (!is_registered(out) || (height > 1 && width > pitch)) return report(cudaErrorInvalidValue);
  emulator::enqueue_work(stream, [=] {
    for (size_t row = 0; row < height; ++row)
      std::memset(static_cast<char*>(out) + row * pitch, value, width);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* out, int value, size_t bytes, cudaStream_t stream) {
  return cudaMemset2DAsync(out, bytes, value, bytes, 1, stream);
}
cudaError_t cudaMemset(void* out, int value, size_t bytes) {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaMemset"); error != cudaSuccess) return error;
  const cudaError_t error = cudaMemsetAsync(out, value, bytes, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard lock(g_mutex);
  if (stream == nullptr || stream->capture != nullptr) return report(cudaErrorStreamCaptureUnsupported);
  stream->ends_in_kernel = false;
  stream->capture = std::make_shared<Capture>(Capture{stream, std::this_thread::get_id()});
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  const std::lock_guard lock(g_mutex);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->origin != stream) return report(cudaErrorIllegalState);
  bool is_joined = true;
  for (const auto& [other, count] : capture->issued) is_joined = is_joined && stream->awaited[other] == count;
  for (CUstream_st* other : streams())
    if (other->capture == capture) {
      other->capture = nullptr;
      other->awaited.clear();
    }
  capture->has_ended = true;
  *out = nullptr;
  if (capture->is_invalid) return report(cudaErrorStreamCaptureInvalidated);
  if (!is_joined) return report(cudaErrorStreamCaptureUnjoined);
  *out = new CUgraph_st{std::move(capture->graph)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const GraphItem& item : graph->work)
    if (item.event != nullptr)
      (void)cudaEventRecord(item.event, stream);
    else if (item.issue)
      item.issue(stream);
    else
      emulator::enqueue_work(stream, item.work, item.seconds);
  return cudaSuccess;
}

}  // extern "C"
