// LoweredQuestion: what make_plan is asked, with the space, bounds and trials that a search of it uses.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "parallel/planner/min_memory_plan.h"
#include "parallel/planner/plan_attempt.h"
#include "parallel/planner/plan_bound.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"

namespace tessera {

struct LoweredQuestion {
  // All must outlive this; devices of one kind.
  LoweredQuestion(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog, const PlanOptions& options);
  // First of all. kInvalidArgument for pins that no strategy has.
  Status begin();

  // Nothing is pinned by words or by a plan to follow, and there are activations to recompute or offload.
  bool may_choose_sets() const { return !roots.has_words && options.like == nullptr && space.trains; }
  // Nor by single decisions, which may create other parts than bounds count.
  bool may_choose_smallest() const { return may_choose_sets() && options.pins.empty(); }
  bool decides_by_measuring() const { return options.finalists > 1 && options.measure && options.like == nullptr; }
  bool is_effort_spent() const { return options.effort != nullptr && options.effort->left <= 0; }

  // Whether lower bounds alone exclude every plan.
  bool is_excluded() { return may_choose_smallest() && exceeds_memory(min_memory_space(), limit); }
  // The plan with least memory; `nothing_else`: larger ones than `enough` are useless.
  Result<std::optional<PlanAttempt>> find_smallest(int64_t enough, bool nothing_else = false);
  // Lower bound of any plan's bytes; 0: unknown.
  int64_t least_bytes() { return may_choose_smallest() ? least_plan_bytes(min_memory_space()) : 0; }
  // Whether a plan fits, without lowering a whole one.
  Result<LikelyFit> likely_fit();

  const Graph& graph;
  const Cluster& cluster;
  const KernelCatalog& catalog;
  const PlanOptions& options;
  const int64_t limit;  // bytes per device
  Graph bound_graph;    // symbols bound except B
  const PlanAttempts trials;
  SpaceOfGraph space;
  SearchRoots roots;
  std::optional<PlanBounds> bounds;  // once begun

 private:
  MinMemorySpace min_memory_space() { return {roots.specs, space, roots.pins, *bounds, trials}; }
  MinMemoryGoal goal(int64_t enough, bool nothing_else) const {
    return {enough, nothing_else, options.factors, options.effort, cluster.shared_cores != 1};
  }
};

}  // namespace tessera
