// Where nothing fits: how many devices of the same kind would do, in words.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "parallel/planner/planner.h"

namespace tessera {

// Found by planning again, under the same limit.
Result<std::string> devices_that_do(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                    const PlanOptions& options);

}  // namespace tessera
