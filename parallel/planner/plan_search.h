// The search of make_plan for devices of one kind. Best first: configurations come up in the order of their
// lower bounds; one is lowered, simulated on all its ranks and sized (plan_attempt.h), and what saves memory
// at the price of time comes up only where it does not fit. No closed form stands in for the program: bounds
// only say what need not be looked at.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "parallel/planner/planner.h"

namespace tessera {

// As make_plan answers, without its advice on devices.
Result<PlanResult> search_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                               const PlanOptions& options);

// A lower bound of the bytes of a device, whatever the plan: found without lowering one. 0: none is known.
Result<int64_t> least_plan_bytes(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                 const PlanOptions& options);

// Whether a plan fits, found without lowering a whole one (planner.h).
Result<LikelyFit> find_likely_fit(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                  const PlanOptions& options);

// Bytes of a device that a plan may fill: what the options say, else what the smallest device has.
int64_t memory_limit(const Cluster& cluster, const PlanOptions& options);

}  // namespace tessera
