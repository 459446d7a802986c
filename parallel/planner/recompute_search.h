// RecomputeSearch: the cheapest recomputation that makes a plan's own
// program fit. A forecast proposes sets (parallel/planner/recompute_set.h);
// each is lowered and sized, and its error corrects the next.
//
// Activation offload: single activations that wait for backward in another tier. Copies are free while they keep pace
// with the kernels, so the activations most expensive to recompute are chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/plan.h"
#include "parallel/planner/recompute_set.h"

namespace tessera {

// MeasuredSet: a set with the sizes of its lowered program.
struct MeasuredSet {
  double seconds = 0;
  std::vector<int64_t> arena_bytes;  // by rank
};
using MeasureSet = std::function<Result<MeasuredSet>(const std::vector<TensorId>&)>;

struct RecomputeEffort {
  int32_t forecasts = 6;  // lowerings to correct the forecast
  int32_t kept = 4;       // lowerings to keep one more value, most expensive first
  // A step this slow is useless; slower sets are not refined.
  double beat_s = std::numeric_limits<double>::infinity();
};

// `whole`: arenas without recomputation. `spare`: the set
// if no forecast fits. nullopt if that does not fit either.
Result<std::optional<std::vector<TensorId>>> search_recompute_set(
    const RecomputeOptions& options, const std::vector<int64_t>& whole, int64_t limit,
    const std::vector<TensorId>& spare, const MeasureSet& measure, const RecomputeEffort& effort);

// Chooses from `movable` (sorted by tensor) the most expensive to recompute
// per byte; ties: the first made. Copies in both directions take at most
// `copy_s` of a place's step, and at most `most_bytes` leave its rank. Sorted.
std::vector<OffloadedTensor> choose_activation_offload(const RecomputeOptions& options,
                                                       std::span<const OffloadedTensor> movable,
                                                       const Cluster& cluster, double copy_s,
                                                       int64_t most_bytes);

// Number of nodes by which a tier copy must precede its reader: for the largest
// of `moved`, if a step of `nodes` nodes takes `step_s`. 1 if nothing moves.
int32_t prefetch_distance(const RecomputeOptions& options, std::span<const OffloadedTensor> moved,
                          const Cluster& cluster, double step_s, int64_t nodes);

}  // namespace tessera
