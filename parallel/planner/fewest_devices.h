// When nothing fits: the smallest number of devices that would do, found by planning again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "graph/base/result.h"

namespace tessera {

// The smallest count in (given, most] that `fits`; nothing when none does. Where a plan may leave devices
// idle, more devices never fit worse (`monotone`): counts are doubled and then bisected, else tried one by
// one. Either way the count named fits and one fewer does not.
Result<std::optional<int32_t>> fewest_devices(int32_t given, int32_t most, bool monotone,
                                              const std::function<Result<bool>(int32_t)>& fits);

}  // namespace tessera
