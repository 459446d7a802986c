// Heterogeneous plan: make_plan for devices of several kinds. Plans every kind alone, with
// the others idle, and every combination as devices of its worst-case kind. The fastest is
// the result; its meshes list its devices, and idle ones have arenas of 0 bytes.
#pragma once

#include "parallel/planner/planner.h"

namespace tessera {

// Whether devices differ in more than their kind's name.
bool is_heterogeneous(const Cluster& cluster);

// The cluster with only the kind of its devices;
// clusters may list unused kinds. Not for several kinds.
Cluster with_one_kind(const Cluster& cluster);

// As make_plan.
Result<PlanResult> plan_heterogeneous(const Graph& graph, const Cluster& cluster,
                                      const KernelCatalog& catalog, const PlanOptions& options,
                                      PlanRefusal& refusal);

}  // namespace tessera
