// Kernels that begin while the one before them on the stream ends (programmatic dependent launch, compute
// capability 9.0 and later; CUDA C++ Programming Guide, "Programmatic Dependent Launch"). What a launch
// costs, and what a kernel can do without the results of others, then falls into the time of its predecessor.
//
// Such a kernel calls `let_next_begin` and `wait_for_previous` at its beginning, all threads of all blocks of
// it. Before the wait it touches no memory of the device: what it reads may not be written yet, what it
// writes may still be read. (Fetching to the L2 cache is no such access.) The wait ends when the kernel
// before has, and so has everything before that, since it waited itself or was launched without overlap.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/overlap.h"

namespace tessera::cuda {

// The next may begin where there is room: it takes what blocks of this kernel leave, when all have begun.
__device__ inline void let_next_begin() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
__device__ inline void wait_for_previous() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Launches a kernel that calls both; it overlaps with the one before where that is such a kernel too.
template <class... Parameters, class... Arguments>
void launch_overlapping(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, size_t shared_bytes,
                        const LaunchArgs& args, Arguments&&... arguments) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  const bool waits = args.overlap != nullptr && can_overlap(reinterpret_cast<const void*>(kernel));
  const cudaLaunchConfig_t config{dim3(blocks), dim3(threads),
                                  shared_bytes, args.stream,
                                  &overlap,     waits && args.overlap->with_previous ? 1u : 0u};
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (waits) *args.overlap = {.with_previous = error == cudaSuccess, .with_next = error == cudaSuccess};
}

}  // namespace tessera::cuda
