// Overlap: a kernel begins while its predecessor on the stream ends (programmatic dependent launch, compute
// capability 9.0 and later; CUDA C++ Programming Guide, "Programmatic Dependent Launch"). The cost of a
// launch, and work that needs no results of others, then fall into the predecessor's time.
//
// All threads of all blocks of such a kernel call `let_next_begin` and `wait_for_previous` at its beginning.
// Before the wait it touches no memory of the device: its inputs may not be written yet, its outputs may
// still be read. (Prefetching to the L2 cache is no such access.) The wait ends when the predecessor has
// ended, and so has everything before that, since it waited itself or was launched without overlap.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/overlap.h"

namespace tessera::cuda {

// Lets the next kernel begin where there is room: in the space that this kernel's blocks leave, when all have
// begun.
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

// Launches a kernel that calls both; it overlaps with its predecessor where that is such a kernel too.
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
