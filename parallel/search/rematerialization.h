// Rematerialization: chooses values to free and recompute, so that no moment exceeds
// a budget and recomputation takes least time. A covering problem over moments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

// RematerializableValue: a value that may be freed. Computations are shared: two values of one computation pay it once.
struct RematerializableValue {
  int64_t bytes = 0;
  std::vector<std::pair<int32_t, int32_t>> moments;  // [first, last] in which its bytes are free
  std::vector<int32_t> works;                        // computations that restore it
};

struct Rematerialization {
  std::vector<bool> released;
  double seconds = 0;
  bool proved = false;  // optimal
};

// `held`: bytes at every moment if nothing is freed; `works`: seconds of each computation. Exact for few values
// (branch and bound, `proved`), else by ratios, then exchanges. nullopt if freeing all does not suffice.
std::optional<Rematerialization> choose_rematerialization(std::span<const int64_t> held,
                                                          std::span<const double> works,
                                                          std::span<const RematerializableValue> values,
                                                          int64_t budget);

// Lower bound of any choice's time, from one moment:
// values are freed in fractions. 0 if the budget suffices.
double rematerialization_bound_s(int64_t excess, std::span<const std::pair<int64_t, double>> values);

}  // namespace tessera
