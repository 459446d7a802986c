// Divisors of a count: possible sizes of a mesh axis or a batch cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera {

// All divisors of `n` > 0 within 32 bits, ascending; none for 0.
inline std::vector<int32_t> divisors(int64_t n) {
  std::vector<int32_t> all;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    all.push_back(static_cast<int32_t>(d));
    if (d * d != n && n / d <= INT32_MAX) all.push_back(static_cast<int32_t>(n / d));
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace tessera
