#include "runtime/backends/cuda/kernels/overlap.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

namespace tessera::cuda {

bool can_overlap(const void* kernel) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, bool> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({device, kernel}, false);
  if (is_new) {
    cudaFuncAttributes compiled{};
    if (cudaFuncGetAttributes(&compiled, kernel) == cudaSuccess)
      found->second = compiled.ptxVersion >= 90;
    else
      (void)cudaGetLastError();
  }
  return found->second;
}

}  // namespace tessera::cuda
