// Row sums of a block of gemv.cuh for 4-bit weights and 16-bit x, on the tensor cores: plain
// multiplications take 6 instructions a number, more than there are at a copy's rate (5.3 T numbers a second,
// 29.6 T instructions).
//
// The block's rows are the rows of the left operand, and its warps share the sum: a warp takes 4 chunks of 32
// numbers, and its next 4 come 8 warps further. With g = lane / 4 and i = lane % 4 (mma.cuh) a lane holds
// chunk i of row g, and of row g + 8 where a warp has two rows. The order of a chunk's numbers within the
// product is free, as long as x agrees, so they stay where masks find them. Numbers become n + 128 (bf16) or
// n + 1024 (f16) by a mask under an exponent, and exact again by one subtraction for two.
//
// Scales belong to chunks, and a column of the result sums over all chunks of a step. So column 4m + i holds
// row m of x at the numbers of chunk i, and zeros elsewhere: 4 of the 8 columns serve a row of x, each with
// the sum of one chunk. This costs nothing, since the columns are there anyway. Two rows of x are one mma,
// more are two.
//
// Order of sums: the tensor core's over a chunk, chunks 4 s + 2 j and the next in a lane, steps in order,
// both lanes of a row of x, and warps in order last. The bits depend neither on kEach nor on the grid nor on
// the other rows of x.
#pragma once

#include "runtime/backends/cuda/kernels/gemv_group.cuh"
#include "runtime/backends/cuda/kernels/mma.cuh"
#include "runtime/backends/cuda/kernels/quantized_weight.cuh"

namespace tessera::cuda {

// n / divisor by one multiplication, exact where n times divisor is below 2^31. 2^31 / divisor is rounded up
// by less than one, which moves the quotient by less than n / 2^31; the next quotient is 1 / divisor away.
struct FastQuotient {
  uint32_t inverse;
  __device__ static FastQuotient by(uint32_t divisor) { return {((1u << 31) + divisor - 1) / divisor}; }
  __device__ uint32_t operator()(uint32_t n) const { return __umulhi(2 * n, inverse); }
};

template <class T, int kM, int kEach>
struct TensorSums {
  using W = float;
  using Chunk = Pack<uint32_t, 4>;
  static constexpr int kNumbers = 32;                                                 // of a chunk
  static_assert(kMostGemvK / kNumbers * (kMostGemvK / kNumbers) < int64_t{1} << 31);  // FastQuotient
  static constexpr int kRows = 8 * kEach;
  static constexpr int kShares = kGemvWarps;  // every warp has a part of each sum
  static constexpr bool kScaled = true;
  static_assert(kEach <= 2);

  struct Rows {
    const Chunk* row[kEach];
    const __half* scale[kEach];
  };
  __device__ static Rows rows(const GemvPlan& plan, const GemvGroup& group) {
    Rows rows;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const GemvRow at = group.row(static_cast<int>(threadIdx.x) % 32 / 4 + 8 * j);
      rows.row[j] = reinterpret_cast<const Chunk*>(group.begin(plan, at));
      rows.scale[j] = group.scale(plan, at);
    }
    return rows;
  }

  // Writes totals [kShares, kM, kRows].
  __device__ static void sum(const GemvPlan& plan, const Rows& rows, const T* x, W* totals) {
    constexpr int kInFlight = 128 / static_cast<int>(sizeof(Chunk)) / kEach;  // steps
    constexpr int kPasses = (kM + 1) / 2;                                     // two rows of x each
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, i = lane % 4;
    const int chunks = static_cast<int>(plan.K / kNumbers), steps = (chunks + 3) / 4;
    const FastQuotient group_of = FastQuotient::by(static_cast<uint32_t>(plan.group / kNumbers));
    // Chunks beyond the end repeat the last one; x has zeros there.
    const auto at_most_last = [&](int chunk) { return chunk < chunks ? chunk : chunks - 1; };

    const T* right_of[kPasses];
    bool has_right[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const int m = 2 * p + g / 4;
      has_right[p] = g % 4 == i && m < kM;
      right_of[p] = x + (has_right[p] ? m * plan.K : 0);
    }

    W sum[kPasses][kEach] = {};
    for (int begin = warp; begin < steps; begin += kGemvWarps * kInFlight) {
      Chunk loaded[kInFlight][kEach];
      __half scale[kInFlight][kEach][2];  // of the chunks whose sums this lane gets
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int chunk = 4 * (begin + kGemvWarps * u), own = at_most_last(chunk + i);
        const int summed = at_most_last(chunk + 2 * (i % 2)), next = at_most_last(summed + 1);
        const uint32_t group[2] = {group_of(static_cast<uint32_t>(summed)),
                                   group_of(static_cast<uint32_t>(next))};
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          loaded[u][j] = rows.row[j][own];
#pragma unroll
          for (int s = 0; s < 2; ++s) scale[u][j][s] = rows.scale[j][group[s]];
        }
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int step = begin + kGemvWarps * u, own = 4 * step + i;
        if (step >= steps) break;
        float product[kPasses][4] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t right[kPasses][8];
#pragma unroll
          for (int p = 0; p < kPasses; ++p)
            load_right(right_of[p] + own * kNumbers + 8 * half, has_right[p] && own < chunks, right[p]);
#pragma unroll
          for (int word = 0; word < 2; ++word) {
            uint32_t number[2][4] = {};  // rows g and g + 8
#pragma unroll
            for (int j = 0; j < kEach; ++j) int4_pairs<T>(loaded[u][j].value[2 * half + word], number[j]);
#pragma unroll
            for (int high = 0; high < 2; ++high) {
              const uint32_t left[4] = {number[0][2 * high], number[1][2 * high], number[0][2 * high + 1],
                                        number[1][2 * high + 1]};
#pragma unroll
              for (int p = 0; p < kPasses; ++p)
                mma<T>(product[p], left, right[p][4 * high + 2 * word], right[p][4 * high + 2 * word + 1]);
            }
          }
        }
#pragma unroll
        for (int p = 0; p < kPasses; ++p)
#pragma unroll
          for (int j = 0; j < kEach; ++j)
#pragma unroll
            for (int s = 0; s < 2; ++s) sum[p][j] += widen(scale[u][j][s]) * product[p][2 * j + s];
      }
    }
#pragma unroll
    for (int p = 0; p < kPasses; ++p)
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const W total = sum[p][j] + __shfl_xor_sync(0xffffffffu, sum[p][j], 1);
        if (const int m = 2 * p + i / 2; i % 2 == 0 && m < kM)
          totals[(warp * kM + m) * kRows + g + 8 * j] = total;
      }
  }

 private:
  // Loads x for words 2 h and 2 h + 1 of a chunk, `from` at the chunk's number 8 h, in the order of
  // int4_pairs: the low halves of both words, then the high ones. Zeros in other lanes.
  __device__ static void load_right(const T* from, bool is_mine, uint32_t (&to)[8]) {
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      Pack<uint32_t, 4> run{};
      if (is_mine) run = *reinterpret_cast<const Pack<uint32_t, 4>*>(from + 16 * high);
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        to[4 * high + 2 * word] = __byte_perm(run.value[2 * word], run.value[2 * word + 1], 0x5410u);
        to[4 * high + 2 * word + 1] = __byte_perm(run.value[2 * word], run.value[2 * word + 1], 0x7632u);
      }
    }
  }
};

}  // namespace tessera::cuda
