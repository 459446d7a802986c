// Search of make_plan for devices of one kind. Best first: configurations are
// taken by lower bounds; each is lowered, simulated on all ranks and sized
// (plan_attempt.h); memory savings that cost time are considered only if it
// does not fit. Costs always come from the program; bounds only exclude.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "parallel/planner/planner.h"

namespace tessera {

// As make_plan, without device advice.
Result<PlanResult> search_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                               const PlanOptions& options);

// Lower bound of the bytes per device of any plan, without lowering. 0: unknown.
Result<int64_t> least_plan_bytes(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                 const PlanOptions& options);

// Whether a plan fits, without lowering a whole one (planner.h).
Result<LikelyFit> find_likely_fit(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                  const PlanOptions& options);

// Bytes per device that a plan may use: the option, else the smallest device's memory.
int64_t memory_limit(const Cluster& cluster, const PlanOptions& options);

}  // namespace tessera
