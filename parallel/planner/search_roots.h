// SearchRoots: the strategies that a plan search starts
// from, by the pins and the plan in its options.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct SearchRoots {
  StrategyPins pins;
  bool has_words = false;  // pins were given
  std::vector<StrategySpec> specs;

  // Whether nothing beyond the pins is chosen; without pins, anything.
  bool is_as_worded(const StrategySpec& spec) const;
};

// At least one. kInvalidArgument without devices, or
// if no strategy with these pins uses all of them.
Result<SearchRoots> search_roots(const SpaceOfGraph& space, const PlanOptions& options, int32_t devices);

}  // namespace tessera
