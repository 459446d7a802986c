#include "parallel/planner/device_advice.h"

#include <algorithm>

#include "parallel/planner/min_device_count.h"
#include "parallel/planner/min_memory_plan.h"
#include "parallel/planner/plan_search.h"

namespace tessera {

Result<DeviceAdvice> devices_that_do(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                     const PlanOptions& given) {
  const auto has = static_cast<int32_t>(cluster.devices.size());
  // Without a given strategy a plan may leave devices idle.
  const DeviceCounts counts{has, std::max(16, 4 * has), given.parallel.empty()};
  std::string strategy;
  HeldFactors factors;
  SearchEffort effort = kAdviceEffort;
  PlanOptions options = given;
  options.any_that_fits = true;
  options.least_limit = nullptr, options.smallest = nullptr;
  options.known = nullptr;  // it applies to the present device count
  options.memory_limit = memory_limit(cluster, given);
  options.factors = &factors;
  options.effort = &effort;
  const auto likely = [&](int32_t count) -> Result<Fit> {
    TSR_ASSIGN_OR_RETURN(const LikelyFit it, find_likely_fit(graph, with_devices(cluster, count), catalog, options));
    return it.fit;
  };
  const auto fits = [&](int32_t count) -> Result<std::optional<bool>> {
    if (effort.left <= 0) return std::optional<bool>();
    const Result<PlanResult> planned = search_plan(graph, with_devices(cluster, count), catalog, options);
    // The strategy may not admit this device count.
    if (planned.ok()) strategy = planned->plan.strategy;
    if (!planned.ok() && effort.left <= 0) return std::optional<bool>();
    return std::optional(planned.ok());
  };
  TSR_ASSIGN_OR_RETURN(const MinDeviceCount found, find_min_device_count(counts, likely, fits));
  return DeviceAdvice{found.count, to_text(found, counts, strategy)};
}

}  // namespace tessera
