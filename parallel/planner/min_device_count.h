// The smallest sufficient number of devices when nothing fits, found by planning again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "graph/base/result.h"
#include "parallel/planner/planner.h"

namespace tessera {

struct DeviceCounts {
  int32_t given = 1, most = 16;  // given: too few; most: largest count tried
  // Plans may leave devices idle, so more devices never hurt:
  // counts are doubled, then bisected. Otherwise each is tried.
  bool is_monotone = true;
};

// A cheap verdict on a device count; if unknown, `fits` decides.
using LikelyToFit = std::function<Result<Fit>(int32_t)>;
// nullopt: undecided, since the effort is spent.
using FitsDevices = std::function<Result<std::optional<bool>>(int32_t)>;

// MinDeviceCount: `count` fits, and one fewer does not. If the effort is spent: `too_few` do not fit.
struct MinDeviceCount {
  std::optional<int32_t> count;
  int32_t too_few = 0;
  bool is_open = false;
};
Result<MinDeviceCount> find_min_device_count(const DeviceCounts& counts, const LikelyToFit& likely, const FitsDevices& fits);

// The end of an error message: " would do" and so on.
std::string to_text(const MinDeviceCount& found, const DeviceCounts& counts, const std::string& strategy = {});

}  // namespace tessera
