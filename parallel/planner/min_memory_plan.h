// Min-memory plan: the strategy that takes the least memory, whatever its time. It answers whether anything
// fits, and which limit would do. Of every root of the space the few nodes that save most are tried. The order
// is by lower bounds of their memory (plan_bound.h, workspace_floor.h), times what strategies of their kind
// were found to hold more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
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

// Strategies that hold more than their bound by like factors: axes, form, zero 3, chunks, recomputation, offload.
using StrategyFamily = std::tuple<bool, bool, bool, bool, bool, TensorForm, bool, int32_t, RecomputeForm, Tier, Tier>;

// HeldFactors: how many times its bound the closest strategy of a family was found to hold.
class HeldFactors {
 public:
  std::optional<double> of(const StrategyFamily& family) const {
    const auto at = least_.find(family);
    return at == least_.end() ? std::nullopt : std::optional(at->second);
  }
  void learn(const StrategyFamily& family, double factor) {
    const auto [at, is_new] = least_.try_emplace(family, factor);
    if (!is_new && factor < at->second) at->second = factor;
  }

 private:
  std::map<StrategyFamily, double> least_;
};

// Goal: a plan of `enough` bytes or less is as good as the smallest.
struct MinMemoryGoal {
  int64_t enough = 0;
  bool nothing_else = false;        // plans of more bytes are of no use
  HeldFactors* factors = nullptr;   // kept from search to search
  SearchEffort* effort = nullptr;   // that lowerings take from
  bool on_two_threads = false;      // the answer is the same
};

// A strategy that is likely to fit: in a few micro-batches it does.
struct LikelyPlan {
  SpaceNode node;
  int64_t instructions = 0;  // of all its micro-batches on all ranks, about
};

// The smallest plan found, with all its ranks lowered; nothing where no strategy can be made, or none can be
// of use.
Result<std::optional<PlanAttempt>> find_min_memory_plan(const MinMemorySpace& space, MinMemoryGoal goal);
// A strategy of `enough` bytes, about; nothing where none is found, or where the effort is spent.
std::optional<LikelyPlan> find_likely_plan(const MinMemorySpace& space, MinMemoryGoal goal);

}  // namespace tessera
