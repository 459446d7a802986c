// Where nothing fits: how many devices of the same kind would do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "parallel/planner/planner.h"

namespace tessera {

struct DeviceAdvice {
  std::optional<int32_t> devices;  // the fewest; nothing where none of those tried do
  std::string words;
};

// Found by planning again, under the same limit.
Result<DeviceAdvice> devices_that_do(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                     const PlanOptions& options);

}  // namespace tessera
