// Rematerialization: which values are freed for a while and computed again, so that no moment exceeds a budget
// and the least time is spent on computing them. A covering problem over moments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

// A value that may be freed. Works are shared: two values of one computation cost it once.
struct RematerializableValue {
  int64_t bytes = 0;
  std::vector<std::pair<int32_t, int32_t>> moments;  // [first, last] during which its bytes are free
  std::vector<int32_t> works;                        // what is computed to have it again
};

struct Rematerialization {
  std::vector<bool> released;
  double seconds = 0;
  bool proved = false;  // no other choice takes less
};

// `held`: bytes at every moment when nothing is freed; `works`: seconds of each. Exact for few values (by
// branch and bound, `proved`), else by ratios, then exchanges. Nothing when all of them do not suffice.
std::optional<Rematerialization> choose_rematerialization(std::span<const int64_t> held,
                                                          std::span<const double> works,
                                                          std::span<const RematerializableValue> values,
                                                          int64_t budget);

// Lower bound of the time of any choice, from one moment alone: values are freed in fractions. 0 where the
// budget holds everything.
double rematerialization_bound_s(int64_t excess, std::span<const std::pair<int64_t, double>> values);

}  // namespace tessera
