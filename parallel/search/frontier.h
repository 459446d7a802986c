// Frontier: the choices that no other choice betters in both time and memory.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct Tradeoff {
  double time_s = 0;
  int64_t bytes = 0;
  int64_t tag = 0;  // index of the choice that it stands for
  friend bool operator==(const Tradeoff&, const Tradeoff&) = default;
};

// By bytes ascending, time strictly descending; of equal points the one given first.
using Frontier = std::vector<Tradeoff>;

Frontier frontier(std::vector<Tradeoff> points);
// Indices of the points on the lower convex hull, by bytes: where a weighted sum of time and bytes can be
// least.
std::vector<size_t> lower_hull(const Frontier& points);

}  // namespace tessera
