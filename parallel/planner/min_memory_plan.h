// Min-memory plan: the strategy that takes the least memory, whatever its time. It answers whether anything
// fits, and which limit would do. Of every root of the space the few nodes that save most are tried. The order
// is by lower bounds of their memory (plan_bound.h, workspace_floor.h), times what strategies of their kind
// were found to hold more.
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

// Whether the lower bound of every node of the space is above the limit.
bool exceeds_memory(const MinMemorySpace& space, int64_t limit);
// The least of these lower bounds: no plan of the space takes fewer bytes.
int64_t least_plan_bytes(const MinMemorySpace& space);

// Goal: a plan of `enough` bytes or less is as good as the smallest.
struct MinMemoryGoal {
  int64_t enough = 0;
  bool nothing_else = false;  // plans of more bytes are of no use
};

// The smallest plan found, with all its ranks lowered; nothing where no strategy can be made, or none can be
// of use.
Result<std::optional<PlanAttempt>> find_min_memory_plan(const MinMemorySpace& space, MinMemoryGoal goal);

}  // namespace tessera
