#include "parallel/planner/device_advice.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/planner/fewest_devices.h"
#include "parallel/planner/plan_search.h"

namespace tessera {

Result<DeviceAdvice> devices_that_do(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                     const PlanOptions& given) {
  const auto has = static_cast<int32_t>(cluster.devices.size());
  const int32_t most = std::max(16, 4 * has);
  std::string strategy;
  PlanOptions options = given;
  options.any_that_fits = true;
  options.least_limit = nullptr, options.smallest = nullptr;
  options.known = nullptr;  // that is of as many devices as there are
  options.memory_limit = memory_limit(cluster, given);
  const auto fits = [&](int32_t count) -> Result<bool> {
    Cluster larger = cluster;
    larger.devices.resize(static_cast<size_t>(count), cluster.devices.back());
    const Result<PlanResult> planned = search_plan(graph, larger, catalog, options);
    // Words may not admit this number of devices at all.
    if (planned.ok()) strategy = planned->plan.strategy;
    return planned.ok();
  };
  // Without words a plan may leave devices idle.
  TSR_ASSIGN_OR_RETURN(const std::optional<int32_t> count,
                       fewest_devices(has, most, options.parallel.empty(), fits));
  if (!count) return DeviceAdvice{{}, format("Up to {} devices would not do either", most)};
  return DeviceAdvice{
      count, format("The smallest number of devices that would do is {}, with '{}'", *count, strategy)};
}

}  // namespace tessera
