#include "capi/engine/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

double LearningRate::at(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (kind == Kind::kConstant) return peak;
  const int64_t first = std::max<int64_t>(warmup, 1);
  const double span = static_cast<double>(std::max<int64_t>(1, steps - first));
  const double done = std::clamp(static_cast<double>(step - first) / span, 0.0, 1.0);
  const double left = kind == Kind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (end_fraction + (1 - end_fraction) * left);
}

}  // namespace tessera
