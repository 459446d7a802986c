// Allocations, copies and fills.
#include "tests/cuda_emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tests/cuda_emulator/accesses.h"
#include "tests/cuda_emulator/device.h"
#include "tests/cuda_emulator/runtime.h"
#include "tests/cuda_emulator/streams.h"

namespace {

using namespace emulator;

constexpr size_t kPage = 4096;

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

}  // namespace

namespace emulator {

Reach::Reach(int device) : device_(device) { protect(PROT_NONE); }
Reach::~Reach() { protect(PROT_READ | PROT_WRITE); }
void Reach::protect(int how) const {
  if (has_peers()) return;
  for (const auto& [at, it] : allocations())
    if (it.on_device && it.device != device_)
      (void)mprotect(const_cast<char*>(at) + it.bytes - it.mapped, it.mapped, how);
}

bool is_device_memory(const void* at) {
  auto found = allocations().upper_bound(static_cast<const char*>(at));
  if (found == allocations().begin()) return false;
  --found;
  return static_cast<const char*>(at) < found->first + found->second.bytes;
}

}  // namespace emulator

extern "C" {

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
  note_work();
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
  allocations()[at] = {used, pages, true, current_device()};
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
  if (!is_device_memory(in) || !is_device_memory(out))
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
  run_until(stream_of(nullptr), stream_of(nullptr)->issued);
  std::memmove(out, in, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* out, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  const std::lock_guard lock(g_mutex);
  if (!is_device_memory(out) || (height > 1 && width > pitch)) return report(cudaErrorInvalidValue);
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

}  // extern "C"
