#include "engine/settings/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>

#include "graph/base/text.h"

namespace tessera {

LearningRate read_rate(OptionReader& reader) {
  LearningRate rate;
  rate.steps = reader.i64("steps", rate.steps, 1);
  rate.peak = reader.f64("lr", rate.peak, 0, 1e6);
  rate.warmup = reader.i64("warmup", rate.warmup, 0);
  rate.end_fraction = reader.f64("lr_end", rate.end_fraction, 0, 1);
  const std::string schedule = reader.choice("schedule", "constant", {"constant", "cosine", "linear", "wsd"});
  rate.kind = schedule == "cosine"   ? LearningRate::Kind::kCosine
              : schedule == "linear" ? LearningRate::Kind::kLinear
              : schedule == "wsd"    ? LearningRate::Kind::kWsd
                                     : LearningRate::Kind::kConstant;
  rate.decay_fraction = reader.f64("decay_fraction", rate.decay_fraction, 0, 1);
  if (reader.choice("decay_shape", "linear", {"linear", "sqrt"}) == "sqrt")
    rate.decay_shape = LearningRate::DecayShape::kSqrt;
  for (const std::string_view key : {"decay_fraction", "decay_shape"})
    if (reader.has(key) && schedule != "wsd")
      reader.fail(
          Status(StatusCode::kInvalidArgument,
                 format("trainer: option '{}' means nothing to schedule '{}': wanted wsd", key, schedule)));
  return rate;
}

// The decay factor, from 1 towards 0; positive at the last step, as in other schedules.
double LearningRate::wsd_left(int64_t step) const {
  const int64_t longest = steps - warmup;
  const double share = decay_fraction * static_cast<double>(steps);
  const int64_t down = share < static_cast<double>(longest) ? std::llround(share) : longest;
  const int64_t before = std::min(step, steps) - 1 - (steps - down);  // decay steps before this one
  if (before <= 0) return 1;
  const double done = static_cast<double>(before) / static_cast<double>(down);
  return decay_shape == DecayShape::kLinear ? 1 - done : 1 - std::sqrt(done);
}

double LearningRate::at(int64_t step) const {
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (kind == Kind::kConstant || steps <= warmup) return peak;
  if (kind == Kind::kWsd) return peak * (end_fraction + (1 - end_fraction) * wsd_left(step));
  // Step s is at (s - 1 - warmup) / (steps - warmup) of the decay: the first step
  // at its begin, and none at its end, where a rate of 0 would waste the step.
  const double done =
      static_cast<double>(std::min(step, steps) - 1 - warmup) / static_cast<double>(steps - warmup);
  const double left = kind == Kind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (end_fraction + (1 - end_fraction) * left);
}

}  // namespace tessera
