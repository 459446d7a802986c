// When nothing fits: the smallest number of devices that would do, found by planning again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "graph/base/result.h"
#include "parallel/planner/planner.h"

namespace tessera {

struct DeviceCounts {
  int32_t given = 1, most = 16;  // too few; as many as are looked at
  // Plans may leave devices idle, so more devices never fit worse: counts are doubled, then bisected. Else they are
  // tried one by one.
  bool is_monotone = true;
};

// A cheap verdict on a device count. Where it is unknown, `fits` decides.
using LikelyToFit = std::function<Result<Fit>(int32_t)>;
// Nothing: left open, as the effort is spent.
using FitsDevices = std::function<Result<std::optional<bool>>(int32_t)>;

// The fewest devices that fit: they do, and one fewer does not. Where the effort is spent before: so many do not.
struct MinDeviceCount {
  std::optional<int32_t> count;
  int32_t too_few = 0;
  bool is_open = false;
};
Result<MinDeviceCount> find_min_device_count(const DeviceCounts& counts, const LikelyToFit& likely, const FitsDevices& fits);

// " would do" and so on, for an error's end.
std::string to_text(const MinDeviceCount& found, const DeviceCounts& counts, const std::string& strategy = {});

}  // namespace tessera
