// Kernels of collectives between ranks of one process: reductions straight from every member's memory, and
// the blocks of an all-to-all.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tessera::cuda {

inline constexpr int32_t kMostMembers = 64;

// Success where this library's kernels run on the current device; cudaErrorNoKernelImageForDevice where it
// was built for others only.
cudaError_t find_kernels();

// ReduceTask: rows of `count` elements, out[j][row * out_stride + i] = in[0] + in[1] + ... (or the maximum)
// at [row * in_stride + i], added in that order. f64 and integers add in their own type, the others in f32
// and are rounded once. An output may be one of the inputs, element for element.
struct ReduceTask {
  const void* in[kMostMembers];
  void* out[kMostMembers];
  int32_t in_count, out_count;
  int64_t rows, in_stride, out_stride, count;
};
bool can_reduce(int32_t dtype, int32_t reduce);
cudaError_t launch_reduce(cudaStream_t stream, int32_t dtype, int32_t reduce, const ReduceTask& task);

// BlockTask: runs of bytes. For o < outer, f < first, m < middle a run is copied from in + o*in[0] + f*in[1]
// + m*in[2] to the corresponding place of out.
struct BlockTask {
  const void* in;
  void* out;
  int64_t outer, first, middle, run_bytes;
  int64_t in_strides[3], out_strides[3];
};
cudaError_t launch_blocks(cudaStream_t stream, const BlockTask& task);

}  // namespace tessera::cuda
