// The strategy that takes the least memory, whatever its time: what is said when nothing fits, and whether
// anything does. Of every root of the space the few nodes that save most come up, those first that are likely
// to be smallest: by what they hold at least (plan_bound.h, workspace_floor.h), times what strategies of their
// kinds were found to hold more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/planner/plan_attempt.h"
#include "parallel/planner/plan_bound.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/workspace_floor.h"

namespace tessera {

// All of one question; must outlive the search.
struct MinMemorySpace {
  const std::vector<StrategySpec>& roots;
  const SpaceOfGraph& graph;
  const StrategyPins& pins;
  PlanBounds& bounds;
  WorkspaceFloor& working;
  const PlanAttempts& trials;
};

// Whether what every node of the space holds at least is too much.
bool exceeds_memory(const MinMemorySpace& space, int64_t limit);

// The first that holds no more is as good as the smallest.
struct MinMemoryGoal {
  int64_t enough = 0;
  bool nothing_else = false;  // what holds more is of no use
};

// The smallest that is found, with all its ranks lowered; nothing where no strategy can be made, or none may
// be of use.
Result<std::optional<PlanAttempt>> find_min_memory_plan(const MinMemorySpace& space, MinMemoryGoal goal);

}  // namespace tessera
