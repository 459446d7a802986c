// Min-memory plan: the strategy with least memory, regardless of time. It decides
// feasibility, and the smallest sufficient limit. For every root of the space the few nodes
// with the largest savings are tried, ordered by lower bounds of their memory (plan_bound.h) times the factors observed for strategies of their kind.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "parallel/planner/plan_attempt.h"
#include "parallel/planner/plan_bound.h"
#include "parallel/planner/plan_space.h"

namespace tessera {

// MinMemorySpace: inputs of one search, which they must outlive.
struct MinMemorySpace {
  const std::vector<StrategySpec>& roots;
  const SpaceOfGraph& graph;
  const StrategyPins& pins;
  PlanBounds& bounds;
  const PlanAttempts& trials;
};

// Whether the lower bound of every node exceeds the limit.
bool exceeds_memory(const MinMemorySpace& space, int64_t limit);
// The least of these bounds: no plan of the space takes fewer bytes.
int64_t least_plan_bytes(const MinMemorySpace& space);

// StrategyFamily: strategies with similar factors over their bounds: axes, form, zero 3, chunks, recomputation, offload.
using StrategyFamily = std::tuple<bool, bool, bool, bool, bool, TensorForm, bool, int32_t, RecomputeForm, Tier, Tier>;

// HeldFactors: the smallest observed factor over the bound, by family.
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

// MinMemoryGoal: a plan of at most `enough` bytes is sufficient.
struct MinMemoryGoal {
  int64_t enough = 0;
  bool nothing_else = false;        // larger plans are useless
  HeldFactors* factors = nullptr;   // shared between searches
  SearchEffort* effort = nullptr;   // budget for lowerings
  bool on_two_threads = false;      // does not change the result
};

// LikelyPlan: a strategy likely to fit, judged by a few micro-batches.
struct LikelyPlan {
  SpaceNode node;
  int64_t instructions = 0;  // approximate, of all micro-batches and ranks
};

// The smallest plan found, with all ranks lowered;
// nullopt if no strategy can be made or be useful.
Result<std::optional<PlanAttempt>> find_min_memory_plan(const MinMemorySpace& space, MinMemoryGoal goal);
// A strategy of about `enough` bytes; nullopt if none is found, or the effort is spent.
std::optional<LikelyPlan> find_likely_plan(const MinMemorySpace& space, MinMemoryGoal goal);

}  // namespace tessera
