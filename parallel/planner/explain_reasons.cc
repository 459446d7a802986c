#include "parallel/planner/explain_reasons.h"

#include <string>

#include "graph/base/text.h"

namespace tessera {

std::string percent(double share) {
  const auto tenths = static_cast<int64_t>(share * 1000 + 0.5);
  return format("{}.{} %", tenths / 10, tenths % 10);
}

void add_reasons(Explanation& it) {
  if (it.step_s <= 0) return;
  const RunnerUp* faster = nullptr;
  for (const RunnerUp& other : it.runners_up)
    if (other.over_bytes > 0 && other.step_s > 0 && other.loses_s < 0 &&
        (faster == nullptr || other.step_s < faster->step_s))
      faster = &other;
  if (faster != nullptr)
    it.reasons.push_back(format("The memory limit costs {} of the step: '{}' would be faster and lacks {}",
                                percent(-faster->loses_s / it.step_s), faster->strategy,
                                bytes_text(faster->over_bytes)));
  const TimeShare* loss = nullptr;
  for (const TimeShare& share : it.time)
    if (share.cause != "compute" && share.cause != "update" && share.seconds > 0.02 * it.step_s &&
        (loss == nullptr || share.seconds > loss->seconds))
      loss = &share;
  if (loss != nullptr)
    it.reasons.push_back(format("Beside computation, most time goes to {}{}: {} of the step", loss->cause,
                                loss->axis.empty() ? std::string() : " over " + loss->axis,
                                percent(loss->seconds / it.step_s)));
}

}  // namespace tessera
