#include "runtime/backends/cuda/kernels/overlap.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

namespace tessera::cuda {

namespace {

// A multiprocessor divides its memory into cache and shared memory for all of its blocks, and must be empty
// to divide it again ("may insert a device-side synchronization point", cudaFuncSetCacheConfig). By default
// each kernel would get what it needs, most of them next to nothing. So kernels that are to share a
// multiprocessor request the same, in per cent: 164 KB of 228 hold two of the largest blocks (attention over
// a cache, 70 KB), and leave 92 KB of cache for 64 KB of loads in flight (gemv.cuh). It is a hint, and no
// error where it is not taken.
constexpr int kSharedPercent = 72;

}  // namespace

bool can_overlap(const void* kernel) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, bool> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({device, kernel}, false);
  if (is_new) {
    cudaFuncAttributes compiled{};
    cudaError_t error = cudaFuncGetAttributes(&compiled, kernel);
    found->second = error == cudaSuccess && compiled.ptxVersion >= 90;
    if (found->second)
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent);
    if (error != cudaSuccess) (void)cudaGetLastError();
  }
  return found->second;
}

}  // namespace tessera::cuda
