// Which activations to keep for the backward pass and which to compute again, so that the least time is spent
// again and the memory held at any moment stays within a budget.
//
// The model: values are computed in order. After the forward pass only the kept ones are held. Then backward
// visits the values last to first; what it needs (its own value and its operands) and is not held is computed
// again, once, from what is held, and stays until its own turn is over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

struct Activation {
  double seconds = 0;  // to compute it
  int64_t bytes = 0;
  std::vector<int32_t> inputs;  // earlier values that its computation and its gradient read
};

struct RecomputeSet {
  std::vector<bool> kept;
  double seconds = 0;      // computed again
  int64_t peak_bytes = 0;  // never above the budget
  bool proved = false;     // no other set of kept values is faster
};

// Peak and time of keeping exactly `kept`.
RecomputeSet evaluate_recompute(std::span<const Activation> values, std::vector<bool> kept);

// Exact for chains (each value reads the one before), by labels over kept values, as long as the number of
// labels stays bounded; for other graphs good and within the budget. kOutOfMemory when nothing that was tried
// fits, with the smallest budget found to work (for chains: the smallest there is).
Result<RecomputeSet> choose_recompute(std::span<const Activation> values, int64_t budget_bytes);

// The chain x0 -> x1 -> ... of given times and sizes.
std::vector<Activation> activation_chain(std::span<const double> seconds, std::span<const int64_t> bytes);

}  // namespace tessera
