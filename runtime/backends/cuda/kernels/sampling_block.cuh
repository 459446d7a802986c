// The block of a sampling kernel (sample.cu), and what its threads tell each other.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda::sampling {

inline constexpr int kThreads = 256, kOwnTokens = 4;
inline constexpr int kPart = kThreads * kOwnTokens;  // tokens a block reads
using Block = Team<kThreads>;

// The values of the threads before this one, in their order; `total` is all of them.
template <class W>
__device__ W sum_before(const Block& team, W value, W& total) {
  __shared__ W of_warp[kThreads / 32];
  const int lane = team.rank % 32, warp = team.rank / 32;
  W sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const W left = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += left;
  }
  if (lane == 31) of_warp[warp] = sum;
  const W previous = __shfl_up_sync(0xffffffffu, sum, 1);
  __syncthreads();
  W before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) before = total;
    total += of_warp[w];
  }
  __syncthreads();  // before the next call writes to `of_warp`
  return lane == 0 ? before : before + previous;
}

// The smallest `index` that any thread brings, INT32_MAX for none; so the largest, -1 for none.
__device__ inline int32_t first_of(const Block& team, int32_t index) { return -team.max(-index); }
__device__ inline int32_t last_of(const Block& team, int32_t index) { return team.max(index); }

}  // namespace tessera::cuda::sampling
