#include "capi/engine/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

double LearningRate::at(int64_t step) const {
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (kind == Kind::kConstant || steps <= warmup) return peak;
  // Step s lies at (s - 1 - warmup) / (steps - warmup) of the way down: the first step is at its beginning and
  // no step is at its end, where a rate of 0 would waste the step.
  const double done = static_cast<double>(std::min(step, steps) - 1 - warmup) /
                      static_cast<double>(steps - warmup);
  const double left = kind == Kind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (end_fraction + (1 - end_fraction) * left);
}

}  // namespace tessera
