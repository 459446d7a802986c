// Heterogeneous plan: make_plan for devices of several kinds. Every kind is planned alone with the others idle,
// and every choice of several kinds as devices of their joint kind. The fastest is the plan; its meshes list
// the devices that it uses, and the others have arenas of 0 bytes.
#pragma once

#include "parallel/planner/planner.h"

namespace tessera {

// Whether devices differ in anything except the name of their kind.
bool is_heterogeneous(const Cluster& cluster);

// The same cluster with the kind of its devices as its only one; a cluster may list kinds that none of its
// devices is of. Not for several kinds.
Cluster with_one_kind(const Cluster& cluster);

// As make_plan.
Result<PlanResult> plan_heterogeneous(const Graph& graph, const Cluster& cluster,
                                      const KernelCatalog& catalog, const PlanOptions& options);

}  // namespace tessera
