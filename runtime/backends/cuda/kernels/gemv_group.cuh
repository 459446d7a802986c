// Row groups of a launch of gemv (gemv.cuh): each holds rows of one part, and blocks take one group after
// another.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/gemv_plan.h"

namespace tessera::cuda {

inline constexpr int kGemvRows = 4, kGemvWarps = 8, kGemvThreads = kGemvWarps * 32;
inline constexpr int kGemvBlocks = 264;      // two for each of 132 multiprocessors; no sum depends on it
inline constexpr int kGemvAhead = 64 << 10;  // 17 MB of all blocks, of 50 that the L2 cache has

// GemvRow: an item of a group, which is one row of the matrix or a pair of them. A group has items first,
// first + 1, ... of a part.
struct GemvRow {
  int matrix, n;
};
__device__ inline GemvRow gemv_row(const GemvPart& part, int item, int second) {
  switch (part.pairing) {
    case Pairing::kGated: return {second, item};
    case Pairing::kRope: {
      if (part.is_interleaved) return {0, 2 * item + second};
      const int D = static_cast<int>(part.D), half = D / 2;
      return {0, item / half * D + item % half + second * half};
    }
    default: return {0, item};
  }
}

// GemvGroup: `rows` rows of one part. Pairs come in two halves, all first rows before all second ones.
struct GemvGroup {
  const GemvPart& part;
  int first, slots;  // items first to first + slots - 1, as far as they exist

  __device__ static GemvGroup of(const GemvPlan& plan, int group, int rows) {
    int which = 0;
    while (which + 1 < plan.parts && group >= plan.part[which + 1].first_group) ++which;
    const GemvPart& part = plan.part[which];
    const int slots = part.pairing != Pairing::kNone ? rows / 2 : rows;
    return {part, (group - part.first_group) * slots, slots};
  }
  // Rows past the end repeat the last row; nothing of them is stored.
  __device__ GemvRow row(int r) const {
    const int item = first + r % slots, last = part.items() - 1;
    return gemv_row(part, item < last ? item : last, r / slots);
  }
  __device__ const uint8_t* begin(const GemvPlan& plan, const GemvRow& at) const {
    return static_cast<const uint8_t*>(part.w[at.matrix]) + at.n * plan.row_bytes;
  }
};

}  // namespace tessera::cuda
