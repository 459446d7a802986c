#include "engine/serving/scheduler/step_times.h"

#include <algorithm>

namespace tessera {

void StepTimes::note(const std::string& entry, double seconds) {
  constexpr double kNewest = 0.2;
  Time& time = times_[entry];
  if (++time.runs <= 2)
    time.seconds = seconds;
  else  // limits the influence of a delayed step
    time.seconds += kNewest * (std::min(seconds, 2 * time.seconds) - time.seconds);
}

std::optional<double> StepTimes::find(const std::string& entry) const {
  const auto at = times_.find(entry);
  if (at == times_.end() || at->second.runs < 2) return {};
  return at->second.seconds;
}

}  // namespace tessera
