// SearchRoots: the strategies that a search of plans begins with, by the words and the plan that its options
// name.
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
  bool has_words = false;  // that pins come from
  std::vector<StrategySpec> specs;

  // Nothing chosen beyond the words given. Without words, anything.
  bool is_as_worded(const StrategySpec& spec) const;
};

// At least one. kInvalidArgument where there are no devices, or no strategy with those words uses all of
// them.
Result<SearchRoots> search_roots(const SpaceOfGraph& space, const PlanOptions& options, int32_t devices);

}  // namespace tessera
