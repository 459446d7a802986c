// The fastest combination of ways of a decision graph within a budget of bytes, proved. `eliminate` keeps
// whole curves of time and memory, which grow with the graph; here only what may still be the best is kept.
//
// Bytes get a price l: the sum of time + l * bytes - l * budget, minimised without a budget, is a bound, the
// best l makes it tightest, and its passes over the elimination tree tell for every partial combination what
// the rest costs at least. Partial combinations that cannot beat the best one known are dropped at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/result.h"
#include "parallel/search/elimination.h"

namespace tessera {

struct BestDecision {
  Decision decision;
  double bound_s = 0;  // nothing within the budget is faster; equal to the decision's time when proved
  bool proved = true;  // false: more than most_points stood side by side, and some were dropped
};

// kOutOfMemory when nothing fits, with the smallest budget that would. kUnsupported when the graph is so
// entangled that a table would exceed `most_entries`.
Result<BestDecision> best_decision(const DecisionGraph& graph, int64_t budget_bytes,
                                   size_t most_points = 4096, size_t most_entries = size_t{1} << 24);

}  // namespace tessera
