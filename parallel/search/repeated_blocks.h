// n equal blocks, each computed in one of a few ways: how many go which way, so that the sum of times is
// least and the sum of bytes within a budget. Exact, by branch and bound around the two ways that the relaxed
// problem mixes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

struct BlockChoice {
  double time_s = 0;
  int64_t bytes = 0;            // added up over blocks
  int64_t transient_bytes = 0;  // the largest of those in use counts, once
};

struct RepeatedBlocks {
  std::vector<int64_t> counts;  // by choice
  double time_s = 0;
  int64_t bytes = 0;   // with the transient
  double bound_s = 0;  // no solution is faster; equal to time_s but for rounding when proved
  bool proved = true;  // false: the search was cut off, bound_s says how far off it may be
};

// kOutOfMemory when not even the smallest choice fits, with the smallest budget that would.
Result<RepeatedBlocks> solve_repeated_blocks(std::span<const BlockChoice> choices, int64_t blocks,
                                             int64_t budget_bytes);

}  // namespace tessera
