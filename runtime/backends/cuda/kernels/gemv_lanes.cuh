// Row sums of a block of gemv.cuh: a warp takes kEach rows, its lanes chunks of them.
//
// The more rows a warp sums, the less often x is loaded and widened. For one row of x it does not matter: at
// 15 bytes a cycle and multiprocessor a pack of bf16 takes 24 instructions of a lane, of the 128 that a
// multiprocessor issues in a cycle. With 4 rows of x it is 72, and 56 with two rows a warp.
#pragma once

#include "runtime/backends/cuda/kernels/gemv_group.cuh"
#include "runtime/backends/cuda/kernels/quantized_weight.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

template <class T, class Weight, int kM, int kEach>
struct LaneSums {
  using W = Wide<T>;
  using Chunk = typename Weight::Chunk;
  static constexpr int kRows = kGemvWarps * kEach;

  // The rows that this lane reads.
  struct Rows {
    const Chunk* row[kEach];
  };
  __device__ static Rows rows(const GemvPlan& plan, const GemvGroup& group) {
    Rows rows;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const GemvRow at = group.row(static_cast<int>(threadIdx.x) / 32 * kEach + j);
      rows.row[j] = reinterpret_cast<const Chunk*>(group.begin(plan, at));
    }
    return rows;
  }

  // Writes totals [kM, kRows].
  __device__ static void sum(const GemvPlan& plan, const Rows& rows, const T* x, W* totals) {
    constexpr int kInFlight = 128 / static_cast<int>(sizeof(Chunk)) / kEach;
    constexpr int kNumbers = Weight::kNumbers;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const Team<32> team{static_cast<int>(threadIdx.x) % 32};
    const int chunks = static_cast<int>(plan.K / kNumbers);
    W sum[kM][kEach] = {};
    for (int begin = team.rank; begin < chunks; begin += 32 * kInFlight) {
      Chunk loaded[kInFlight][kEach];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u)
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          if (begin + 32 * u < chunks) loaded[u][j] = rows.row[j][begin + 32 * u];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int c = begin + 32 * u;
        if (c >= chunks) break;
        W left[kM][kNumbers];
#pragma unroll
        for (int m = 0; m < kM; ++m) load_run<kNumbers>(x + m * plan.K + int64_t{c} * kNumbers, left[m]);
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          W number[kNumbers];
          Weight::widen(loaded[u][j], number);
#pragma unroll
          for (int m = 0; m < kM; ++m)
#pragma unroll
            for (int i = 0; i < kNumbers; ++i) sum[m][j] += number[i] * left[m][i];
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const W total = team.sum(sum[m][j]);
        if (team.rank == 0) totals[m * kRows + warp * kEach + j] = total;
      }
  }
};

}  // namespace tessera::cuda
