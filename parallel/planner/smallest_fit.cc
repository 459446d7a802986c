#include "parallel/planner/smallest_fit.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/planner/min_memory_plan.h"
#include "parallel/pricing/device_limit.h"

namespace tessera {

Status nothing_fits(const SmallestLimit& it) {
  return Status(StatusCode::kOutOfMemory,
                format("no plan{} fits {} a device; the smallest limit that {} is {} ({} bytes) with '{}'. {}", it.entries,
                       bytes_text(it.given), it.is_exact ? "works" : "was found to work", bytes_text(it.bytes), it.bytes,
                       it.strategy, it.more))
      .with_number("needed_bytes", it.bytes)
      .with_number("limit_bytes", it.given)
      .with_number("smallest_limit_bytes", it.bytes);
}

Result<MinDeviceCount> find_min_device_count(const DeviceCounts& counts, const LikelyToFit& likely, const FitsDevices& fits) {
  MinDeviceCount found;
  found.too_few = counts.given;
  // Unlikely counts are skipped; a likely one is verified once, at the end.
  const auto may_fit = [&](int32_t count) -> Result<std::optional<bool>> {
    TSR_ASSIGN_OR_RETURN(const Fit fit, likely(count));
    if (fit == Fit::kUnknown) return fits(count);
    return std::optional(fit == Fit::kLikely);
  };
  while (found.too_few < counts.most) {
    int32_t enough = 0;
    while (enough == 0 ? found.too_few < counts.most : enough - found.too_few > 1) {
      const int32_t step = enough > 0 ? (enough - found.too_few) / 2 : counts.is_monotone ? found.too_few : 1;
      const int32_t count = std::min(counts.most, found.too_few + step);
      TSR_ASSIGN_OR_RETURN(const std::optional<bool> does, may_fit(count));
      if (!does) return found.is_open = true, found;
      (*does ? enough : found.too_few) = count;
    }
    if (enough == 0) return found;
    TSR_ASSIGN_OR_RETURN(const std::optional<bool> does, fits(enough));
    if (!does) return found.is_open = true, found;
    if (*does) return found.count = enough, found;
    found.too_few = enough;
  }
  return found;
}

Status with_device_count(const Status& refused, const MinDeviceCount& found, const DeviceCounts& counts,
                         const std::string& strategy) {
  if (!found.count && found.is_open && found.too_few == counts.given) return refused;
  const std::string words =
      found.count ? format("The smallest number of devices that would do is {}{}", *found.count,
                           strategy.empty() ? "" : format(", with '{}'", strategy))
                  : format("Up to {} devices would not do either", found.is_open ? found.too_few : counts.most);
  const Status advised = Status(refused.code(), format("{}. {}", refused.message(), words)).with_numbers_of(refused);
  return found.count ? advised.with_number("smallest_devices", *found.count) : advised;
}

Status with_device_advice(const Status& refused, const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                          const PlanOptions& given) {
  const auto has = static_cast<int32_t>(cluster.devices.size());
  // Without a given strategy a plan may leave devices idle.
  const DeviceCounts counts{has, std::max(16, 4 * has), given.parallel.empty()};
  std::string strategy;
  HeldFactors factors;
  SearchEffort effort = kAdviceEffort;
  PlanOptions options = given;
  options.any_that_fits = true, options.advise = false;
  options.known = nullptr;  // it applies to the present device count
  options.memory_limit = device_limit(cluster, given.memory_limit);
  options.factors = &factors;
  options.effort = &effort;
  const auto likely = [&](int32_t count) -> Result<Fit> {
    TSR_ASSIGN_OR_RETURN(const LikelyFit it, likely_fit(graph, with_devices(cluster, count), catalog, options));
    return it.fit;
  };
  const auto fits = [&](int32_t count) -> Result<std::optional<bool>> {
    if (effort.left <= 0) return std::optional<bool>();
    const Result<PlanResult> planned = make_plan(graph, with_devices(cluster, count), catalog, options);
    // The strategy may not admit this device count.
    if (planned.ok()) strategy = planned->plan.strategy;
    if (!planned.ok() && effort.left <= 0) return std::optional<bool>();
    return std::optional(planned.ok());
  };
  const Result<MinDeviceCount> found = find_min_device_count(counts, likely, fits);
  return found.ok() ? with_device_count(refused, *found, counts, strategy) : found.status();
}

}  // namespace tessera
