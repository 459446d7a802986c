// Advice when nothing fits: the number of devices of the same kind that suffices.
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
  std::optional<int32_t> devices;  // the smallest sufficient count; nullopt: none of those tried
  std::string words;
};

// Budget of lowered instructions for searches over device counts: some seconds of a core.
inline constexpr SearchEffort kAdviceEffort{1'500'000};

// The cluster with `count` devices, adding or removing ones like its last.
inline Cluster with_devices(Cluster cluster, int32_t count) {
  cluster.devices.resize(static_cast<size_t>(count), cluster.devices.back());
  return cluster;
}

// Found by planning again under the same limit.
Result<DeviceAdvice> devices_that_do(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                     const PlanOptions& options);

}  // namespace tessera
