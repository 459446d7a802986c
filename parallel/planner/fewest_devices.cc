#include "parallel/planner/fewest_devices.h"

#include <algorithm>

namespace tessera {

Result<std::optional<int32_t>> fewest_devices(int32_t given, int32_t most, bool monotone,
                                              const std::function<Result<bool>(int32_t)>& fits) {
  if (!monotone) {
    for (int32_t count = given + 1; count <= most; ++count) {
      TSR_ASSIGN_OR_RETURN(const bool does, fits(count));
      if (does) return std::optional(count);
    }
    return std::optional<int32_t>();
  }
  int32_t too_few = given, enough = given;
  while (enough == given && too_few < most) {
    const int32_t count = std::min(most, 2 * too_few);
    TSR_ASSIGN_OR_RETURN(const bool does, fits(count));
    (does ? enough : too_few) = count;
  }
  if (enough == given) return std::optional<int32_t>();
  while (enough - too_few > 1) {
    const int32_t count = too_few + (enough - too_few) / 2;
    TSR_ASSIGN_OR_RETURN(const bool does, fits(count));
    (does ? enough : too_few) = count;
  }
  return std::optional(enough);
}

}  // namespace tessera
