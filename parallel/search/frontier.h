// Frontier: what cannot be bettered in time and memory at once. Sums and products of frontiers form a
// semiring, so that dynamic programs over choices (+) and sequences (*) carry whole trade-offs instead of one
// number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct Tradeoff {
  double time_s = 0;
  int64_t bytes = 0;
  int64_t tag = 0;  // whose it is; callers rebuild decisions from it
  friend bool operator==(const Tradeoff&, const Tradeoff&) = default;
};

// By bytes ascending, time strictly descending; of equal points the one given first.
using Frontier = std::vector<Tradeoff>;

Frontier frontier(std::vector<Tradeoff> points);
Frontier either(const Frontier& a, const Frontier& b);  // sum: one or the other
// Product: both. The tag of a result is index in a * |b| + index in b.
Frontier both(const Frontier& a, const Frontier& b);

// Indices of the points on the lower convex hull, by bytes: where a weighted sum of time and bytes can be
// least.
std::vector<size_t> lower_hull(const Frontier& points);

// What a block of one pipeline stage holds, before it is known how many micro-batches are in flight there.
struct Footprint {
  double time_s = 0;             // of one micro-batch
  int64_t stationary_bytes = 0;  // parameters, gradients, optimizer state
  int64_t activation_bytes = 0;  // kept of each micro-batch in flight
  int64_t transient_bytes = 0;   // at the worst moment; the largest over blocks counts
  friend bool operator==(const Footprint&, const Footprint&) = default;
};
Footprint operator+(const Footprint& a, const Footprint& b);
std::vector<Footprint> undominated(std::vector<Footprint> points);

// At a fixed stage all but the transient collapse to bytes.
Tradeoff at_stage(const Footprint& block, int64_t in_flight);

}  // namespace tessera
