// RecomputeSearch: the cheapest recomputation with which a plan's own program fits. A forecast proposes sets
// (parallel/planner/recompute_set.h); each is lowered and sized, and what the forecast was off by goes into
// the next.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "parallel/planner/recompute_set.h"

namespace tessera {

// A set as its lowered program has it.
struct MeasuredSet {
  double seconds = 0;
  std::vector<int64_t> arena_bytes;  // by rank
};
using MeasureSet = std::function<Result<MeasuredSet>(const std::vector<TensorId>&)>;

struct RecomputeEffort {
  int32_t forecasts = 6;  // lowerings to find out how much a forecast is off by
  int32_t kept = 4;       // and to keep one more value after all, dearest first
  // A step that takes as long is of no use: nothing is refined that is not faster.
  double beat_s = std::numeric_limits<double>::infinity();
};

// `whole`: arenas when nothing is computed again. `spare`: a set for when none of the forecasts fits. Nothing
// when that does not fit either.
Result<std::optional<std::vector<TensorId>>> search_recompute_set(
    const RecomputeOptions& options, const std::vector<int64_t>& whole, int64_t limit,
    const std::vector<TensorId>& spare, const MeasureSet& measure, const RecomputeEffort& effort);

}  // namespace tessera
