// Decisions in addition to the sharding, for a plan with assigned nodes and stored tensors: chunks,
// recomputation, kept gathers, offload. Each is a walk over the graph, without naming ops or models.
#pragma once

#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// `graph`: the plan's step, symbols bound.
//
//   chunks     nodes whose weight is gathered on use run in `spec.chunks` slices (fewer where there are fewer
//   units) of
//              the dim of the weight that the first forward product contracts; backward products slice the
//              same dim
//   recompute  full: every activation of a block but those that leave it; scopes identify blocks
//   ("block.3") keep       everything that forward gathers is kept offload    stored tensors by kind;
//   optimizer steps run on the host next to their state; activations that backward
//              reads
// recompute=some adds nothing: the set is chosen on the lowered program
// (parallel/planner/recompute_search.h).
Status refine_plan(const Graph& graph, const StrategySpec& spec, Plan& plan);

// Activations recomputed by recompute=full: all of a block except its outputs; sorted.
std::vector<TensorId> block_activations(const Graph& graph);

}  // namespace tessera
