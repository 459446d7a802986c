#include "runtime/backends/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/backends/cuda/cuda_status.h"

namespace tessera::cuda {

namespace {

constexpr int64_t kZone = 4096;
constexpr unsigned char kMark = 0xc3;

// Guards: the allocations with red zones, by pointer, since freeing gets nothing else.
struct Guards {
  std::mutex mutex;
  std::map<void*, void*> base_of;  // memory -> allocation
};
Guards& guards() {
  static Guards all;
  return all;
}

cudaError_t allocate(int32_t tier, size_t bytes, void** out) {
  return tier == 0 ? cudaMalloc(out, bytes) : cudaHostAlloc(out, bytes, cudaHostAllocPortable);
}

// OwnStream: a stream for clearing and comparing memory. Waiting for the whole device would fail while
// another thread captures a graph, and end its capture.
class OwnStream {
 public:
  ~OwnStream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  cudaError_t create() { return cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  cudaError_t set(int32_t tier, void* memory, int value, size_t bytes) const {
    if (tier == 0) return cudaMemsetAsync(memory, value, bytes, stream_);
    std::memset(memory, value, bytes);
    return cudaSuccess;
  }
  cudaError_t fetch(void* to, const void* from, size_t bytes) const {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
  }
  cudaError_t wait() const { return cudaStreamSynchronize(stream_); }

 private:
  cudaStream_t stream_ = nullptr;
};
cudaError_t release(int32_t tier, void* memory) {
  return tier == 0 ? cudaFree(memory) : cudaFreeHost(memory);
}

bool zone_holds(const OwnStream& stream, const void* zone, int64_t bytes) {
  std::vector<unsigned char> found(static_cast<size_t>(bytes));
  if (stream.fetch(found.data(), zone, found.size()) != cudaSuccess || stream.wait() != cudaSuccess)
    return true;
  return std::ranges::all_of(found, [](unsigned char byte) { return byte == kMark; });
}

}  // namespace

Result<void*> memory_alloc(int32_t tier, int64_t bytes, bool guarded) {
  if (tier != 0 && tier != 1)
    return Status(StatusCode::kUnsupported, format("memory tier {}: the cuda backend has 0 and 1", tier));
  if (bytes < 0 || bytes > (int64_t{1} << 46))
    return Status(StatusCode::kInvalidArgument, format("{} bytes is no arena size", bytes));
  const int64_t used = std::max<int64_t>(bytes, 1), zones = guarded ? 2 * kZone : 0;
  void* base = nullptr;
  if (const cudaError_t error = allocate(tier, static_cast<size_t>(used + zones), &base);
      error != cudaSuccess) {
    size_t available = 0, total = 0;
    (void)cudaMemGetInfo(&available, &total);
    return from_cuda(
        error, format("{} of {} memory, {} of {} free", bytes_text(bytes), tier == 0 ? "device" : "pinned",
                      bytes_text(static_cast<int64_t>(available)), bytes_text(static_cast<int64_t>(total))));
  }
  char* memory = static_cast<char*>(base) + (guarded ? kZone : 0);
  // Arenas are zero when new, as anonymous mappings are.
  OwnStream stream;
  cudaError_t error = stream.create();
  if (error == cudaSuccess) error = stream.set(tier, memory, 0, static_cast<size_t>(used));
  if (guarded && error == cudaSuccess) error = stream.set(tier, base, kMark, kZone);
  if (guarded && error == cudaSuccess) error = stream.set(tier, memory + used, kMark, kZone);
  if (error == cudaSuccess) error = stream.wait();
  if (error != cudaSuccess) {
    (void)release(tier, base);
    return from_cuda(error, "clearing new memory");
  }
  if (guarded) {
    const std::lock_guard lock(guards().mutex);
    guards().base_of[memory] = base;
  }
  return static_cast<void*>(memory);
}

Status memory_free(int32_t tier, void* memory, int64_t bytes) {
  if (memory == nullptr) return {};
  void* base = memory;
  bool guarded = false;
  {
    const std::lock_guard lock(guards().mutex);
    if (const auto found = guards().base_of.find(memory); found != guards().base_of.end()) {
      base = found->second;
      guarded = true;
      guards().base_of.erase(found);
    }
  }
  Status status;
  OwnStream stream;
  // Running kernels may still write there. (During a capture nothing is compared.)
  if (guarded && cudaDeviceSynchronize() == cudaSuccess && stream.create() == cudaSuccess) {
    if (!zone_holds(stream, base, kZone))
      status = Status(StatusCode::kInternal, "something wrote before the start of an arena");
    else if (!zone_holds(stream, static_cast<char*>(memory) + std::max<int64_t>(bytes, 1), kZone))
      status = Status(StatusCode::kInternal, "something wrote past the end of an arena");
  }
  if (const cudaError_t error = release(tier, base); status.ok()) status = from_cuda(error, "freeing memory");
  (void)cudaGetLastError();
  return status;
}

}  // namespace tessera::cuda
