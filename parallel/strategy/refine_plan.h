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
// clang-format off
//   chunks     a node that gathers its weight on use runs in `spec.chunks` slices (at most one per unit) along
//              the weight dim contracted by its first forward matmul (of a lookup: another); backward matmuls
//              slice the same dim
//   recompute  full: every activation of a block but those that leave it; scopes identify blocks ("block.3")
//   keep       all tensors gathered in forward stay for backward
//   offload    stored tensors of the kinds in `spec.offload`; optimizer steps run on the host with their
//              state; activations that backward reads are offloaded too, where it names them
// clang-format on
//
// recompute=some adds nothing: the set is chosen on the lowered program
// (parallel/planner/recompute_search.h).
Status refine_plan(const Graph& graph, const StrategySpec& spec, Plan& plan);

// Activations recomputed by recompute=full: all of a block except its outputs; sorted.
std::vector<TensorId> block_activations(const Graph& graph);

}  // namespace tessera
