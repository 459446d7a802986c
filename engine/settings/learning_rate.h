// LearningRate: the rate of each step; a pure function, so there is no schedule state to save.
#pragma once

#include <cstdint>

#include "engine/base/options.h"

namespace tessera {

struct LearningRate {
  enum class Kind { kConstant, kCosine, kLinear, kWsd } kind = Kind::kConstant;
  enum class DecayShape { kLinear, kSqrt };  // from 1 to 0 over x in [0, 1]: 1 - x, 1 - sqrt(x)
  double peak = 1e-4;       // for fine-tuning; from scratch 1e-3 and more
  double end_fraction = 0;  // of the peak, at the end of the decay, which is step `steps` + 1
  int64_t warmup = 10;      // steps of linear increase; step `warmup` has the peak
  int64_t steps = 100;      // later steps keep the last rate
  double decay_fraction = 0.1;  // kWsd: share of the steps that decay, at the end
  DecayShape decay_shape = DecayShape::kLinear;

  double at(int64_t step) const;  // step 1, 2, ...

 private:
  double wsd_left(int64_t step) const;
};

LearningRate read_rate(OptionReader& reader);

}  // namespace tessera
