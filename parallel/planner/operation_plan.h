// Plans any graph operation by operation on one mesh: every node in one of its factor assignments, every
// parameter, input and state in one of its stored layouts, every disagreement a reshard at its price. No
// strategy is named and no structure assumed; what is chosen is a plan like any other, and lowers as one.
//
// The ways and prices make a decision graph (search/elimination.h), whose optimum within a budget is proved
// (search/best_decision.h). Kernels and collectives are priced one after the other, and a conversion once for
// each reader. The lowered program shares conversions and overlaps, and makes copies to lay a collective's
// parts in order: plan_operations_simulated goes by that.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"
#include "parallel/search/best_decision.h"

namespace tessera {

struct OperationSpace {
  DeviceMesh mesh;
  std::vector<std::vector<NodePlan>> nodes;       // by node: its ways
  std::vector<TensorId> tensors;                  // parameters, inputs, constants, state
  std::vector<std::vector<ShardingSpec>> stored;  // of those: their ways
  // Nodes first, then tensors. Bytes: what is stored, and every value that is computed, on the largest rank.
  DecisionGraph decisions;
};

// `graph` has no symbols left. An axis goes to one factor of a node, or carries its sums, or neither.
Result<OperationSpace> operation_space(const Graph& graph, const DeviceMesh& mesh, const Cluster& cluster,
                                       const KernelCatalog& catalog);

// The plan that a combination of ways stands for.
Plan plan_of(const OperationSpace& space, const Graph& graph, const std::vector<int32_t>& ways);

struct OperationPlan {
  Plan plan;
  double seconds = 0;  // kernels and collectives
  int64_t bytes = 0;
  double bound_s = 0;  // nothing of the space within the budget takes less
  bool proved = true;
};

// kOutOfMemory when nothing fits, with the smallest budget that would.
Result<OperationPlan> plan_operations(const Graph& graph, const DeviceMesh& mesh, const Cluster& cluster,
                                      const KernelCatalog& catalog, int64_t budget_bytes);

// The same by the simulated time of the lowered program, overlap and shared conversions included. Plans are
// lowered in the order of a bound that they cannot beat (kernels alone, or collectives alone with a
// conversion shared among all readers of a value), until the bound reaches the fastest: then the gap is 0.
// Where the space has more than `most_plans`, only its best by bound are, and the gap says how far off they
// may be.
struct SimulatedPlan {
  Plan plan;
  double seconds = 0;
  double bound_s = 0;
  double gap = 0;     // (seconds - bound) / seconds
  int64_t plans = 0;  // of the space, that fit the budget; -1 when they were not counted
  int64_t simulated = 0;
};
Result<SimulatedPlan> plan_operations_simulated(const Graph& graph, const DeviceMesh& mesh,
                                                const Cluster& cluster, const KernelCatalog& catalog,
                                                int64_t budget_bytes, int64_t most_plans = 100'000);

// Simulated seconds of one run of a plan's lowered program; what cannot be lowered says why.
Result<double> simulated_seconds(const Graph& graph, const Plan& plan, const Cluster& cluster,
                                 const KernelCatalog& catalog);

}  // namespace tessera
