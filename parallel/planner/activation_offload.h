// Activation offload of a plan: single activations that wait for backward
// in another tier. Copies are free while they keep pace with the kernels,
// so the activations most expensive to recompute are chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/cluster.h"
#include "graph/plan.h"
#include "parallel/planner/recompute_set.h"

namespace tessera {

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
