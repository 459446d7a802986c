// A convex function that is nowhere above another one, of which only a few values are known: enough to bound
// sums of it, since of equal functions an even split of a sum is the least.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/search/frontier.h"

namespace tessera {

struct KnownValue {
  int64_t at = 0;
  double value = 0;
};

class ConvexFloor {
 public:
  // `known`: by `at`, ascending, at least one. Between two of them the function grows by `slope` at least for
  // each step.
  ConvexFloor(std::span<const KnownValue> known, double slope);

  // Between the first and the last that is known.
  double operator()(double at) const;
  double steepest() const;  // slope of the last piece; 0 with one known value only

 private:
  std::vector<Tradeoff> corners_;
};

}  // namespace tessera
