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

// Instructions that searches over device counts may lower in all: some seconds of a core.
inline constexpr SearchEffort kAdviceEffort{1'500'000};

// The cluster with devices like its last, so many in all.
inline Cluster with_devices(Cluster cluster, int32_t count) {
  cluster.devices.resize(static_cast<size_t>(count), cluster.devices.back());
  return cluster;
}

// Found by planning again, under the same limit.
Result<DeviceAdvice> devices_that_do(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                     const PlanOptions& options);

}  // namespace tessera
