// Activation offload of a plan: which single activations wait for backward in another tier. Copies take no time
// of the kernels as long as they keep up with them, so the activations chosen are those that would be dearest
// to compute again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/cluster.h"
#include "graph/plan.h"
#include "parallel/planner/recompute_set.h"

namespace tessera {

// Of `movable` (sorted by tensor) those that cost most to make again for their bytes, of equal ones the first
// that are made, while copying them there and back takes no more than `copy_s` of a place's step, and no more
// than `most_bytes` have left its rank. Sorted.
std::vector<OffloadedTensor> choose_activation_offload(const RecomputeOptions& options,
                                                       std::span<const OffloadedTensor> movable,
                                                       const Cluster& cluster, double copy_s,
                                                       int64_t most_bytes);

// Nodes that a tier copy has to be issued ahead of its reader to be there in time: of the largest of `moved`,
// where a step of `nodes` nodes takes `step_s`. 1 where nothing moves.
int32_t prefetch_distance(const RecomputeOptions& options, std::span<const OffloadedTensor> moved,
                          const Cluster& cluster, double step_s, int64_t nodes);

}  // namespace tessera
