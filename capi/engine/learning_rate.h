// LearningRate: the rate of each step; a pure function of the step, so there is no schedule state to save.
#pragma once

#include <cstdint>

namespace tessera {

struct LearningRate {
  enum class Kind { kConstant, kCosine, kLinear } kind = Kind::kConstant;
  double peak = 1e-3;
  double end_fraction = 0;  // last rate / peak
  int64_t warmup = 0;       // steps of linear rise; step `warmup` has the peak
  int64_t steps = 100;      // afterwards the last rate stays

  double at(int64_t step) const;  // step 1, 2, ...
};

}  // namespace tessera
