// largest_difference: between numbers at the same place in two lists of as many.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/capi/c_api.h"

namespace capi_test {

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(double{a[i]} - double{b[i]}));
  return largest;
}

}  // namespace capi_test
