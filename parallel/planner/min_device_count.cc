#include "parallel/planner/min_device_count.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

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
    int32_t enough = 0, step = counts.is_monotone ? found.too_few : 1;
    while (enough == 0 && found.too_few < counts.most) {
      const int32_t count = std::min(counts.most, found.too_few + step);
      TSR_ASSIGN_OR_RETURN(const std::optional<bool> does, may_fit(count));
      if (!does) return found.is_open = true, found;
      (*does ? enough : found.too_few) = count;
      if (counts.is_monotone) step = found.too_few;
    }
    if (enough == 0) return found;
    while (enough - found.too_few > 1) {
      const int32_t count = found.too_few + (enough - found.too_few) / 2;
      TSR_ASSIGN_OR_RETURN(const std::optional<bool> does, may_fit(count));
      if (!does) return found.is_open = true, found;
      (*does ? enough : found.too_few) = count;
    }
    TSR_ASSIGN_OR_RETURN(const std::optional<bool> does, fits(enough));
    if (!does) return found.is_open = true, found;
    if (*does) return found.count = enough, found;
    found.too_few = enough;
  }
  return found;
}

std::string to_text(const MinDeviceCount& found, const DeviceCounts& counts, const std::string& strategy) {
  if (found.count)
    return format("The smallest number of devices that would do is {}{}", *found.count,
                  strategy.empty() ? "" : format(", with '{}'", strategy));
  if (!found.is_open) return format("Up to {} devices would not do either", counts.most);
  return found.too_few == counts.given ? "" : format("Up to {} devices would not do either", found.too_few);
}

}  // namespace tessera
