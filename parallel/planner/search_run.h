// SearchRun: one plan search (plan_search.h), from its
// roots to the result. Used for one query, in one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "parallel/planner/min_memory_plan.h"
#include "parallel/planner/plan_attempt.h"
#include "parallel/planner/plan_bound.h"
#include "parallel/planner/plan_queue.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/search_roots.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

class SearchRun {
 public:
  // All four must outlive this.
  SearchRun(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
            const PlanOptions& options);

  // Call once.
  Result<PlanResult> run();
  // Lower bound of any plan's bytes, instead of a run; 0: unknown.
  Result<int64_t> least_bytes();
  // Whether a plan fits, instead of a run.
  Result<LikelyFit> likely_fit();

 private:
  // Lowerings after a plan is found.
  static constexpr int64_t kMostWithPlan = 32;
  // Finalists are predicted within this factor of the fastest.
  static constexpr double kFinalistTime = 1.5;

  Status begin();
  int64_t tokens() const;
  MinMemoryGoal goal(int64_t enough, bool nothing_else = false) const;
  bool is_effort_spent() const { return options_.effort != nullptr && options_.effort->left <= 0; }
  void come_up(const SpaceNode& node, double at_least_s, int64_t saves_from = INT64_MAX);
  // Explores until no open node can beat the fastest that fits, which is
  // returned with all ranks lowered; the number of attempts if none fits.
  Result<size_t> explore();
  void look_at(const OpenPlan& open);
  void save(const SpaceNode& node, double at_least_s, int64_t bytes);
  // Index of the fastest that fits; ties: fewer collectives, then the first found.
  size_t fastest() const;
  // Lowers it as it will run. A recompute set that is
  // then too large is chosen again with a smaller budget.
  Status finalize(size_t which);
  int64_t spent() const;

  // --- recompute sets (search_sets.cc) ---

  bool may_choose_sets() const;
  // Without pins; given single decisions may create other parts than bounds count.
  bool may_choose_smallest() const;
  // Extra time, at least and likely, for a strategy of these
  // bytes to fit by recomputation; infinite if no set suffices.
  std::pair<double, double> seconds_again(const StrategySpec& spec, int64_t bytes);
  // Tries recompute sets for nodes that are too large only if everything is kept, and
  // otherwise faster than the present plan. The smallest likely loss comes first.
  size_t try_sets(size_t best);
  Result<size_t> recompute_some(size_t best);

  // --- measured plans (search_finalists.cc) ---

  bool decides_by_measuring() const;
  // The plans to measure: the fastest of each family, then the next of any.
  Result<std::vector<size_t>> finalists(size_t best);
  Result<size_t> fastest_measured(size_t best);

  // --- result (search_answer.cc) ---

  // Lower bound of the steps of the node and its descendants;
  // for a node that cannot fit, of its descendants alone.
  double bound_below(const SpaceNode& node);
  double bound_of_sets(const SpaceNode& node);
  // `none`: known not to fit.
  Result<PlanResult> any_within(bool none);
  PlanResult any_of(size_t which);
  PlanResult result_of(size_t best);
  Result<PlanResult> nothing_fits();

  const Graph& graph_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  const PlanOptions& options_;
  const int64_t limit_;
  Graph bound_graph_;  // symbols bound except B
  const PlanAttempts trials_;
  SpaceOfGraph space_;
  SearchRoots roots_;
  bool may_save_ = true;          // savings are allowed
  PlanBounds* bounds_ = nullptr;  // set when a run begins
  bool is_single_ = false;        // a single root: only savings are searched
  bool bounds_hold_ = true;
  double trust_ = 1;         // factor on bounds
  double likely_trust_ = 1;  // factor on likely times
  PlanQueue queue_;
  std::vector<OpenPlan> closed_;              // by bound
  std::vector<SpaceNode> held_back_;          // while literal nodes may still fit
  std::vector<OpenPlan> hopeless_;            // too large by their bounds
  std::set<std::string> with_sets_;           // nodes with a tried recompute set
  bool sets_tried_ = false;                   // before a plan was found
  int64_t skipped_ = 0;                       // skipped by saved activations alone
  const MinMemorySpace* smallest_ = nullptr;  // null: the smallest is not searched
  std::optional<PlanAttempt> least_;          // its result
  std::vector<PlanAttempt> attempts_;
  PlanSearch search_;
  int64_t without_ = 0;  // lowerings before a plan was found
};

}  // namespace tessera
