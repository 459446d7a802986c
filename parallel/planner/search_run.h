// SearchRun: one search of plans (plan_search.h), from the strategies that it begins with to the answer and
// what is said of it. Lives for one question, in one thread.
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

  // Once.
  Result<PlanResult> run();
  // A lower bound of any plan's bytes, in place of a run; 0: none is known.
  Result<int64_t> least_bytes();
  // Whether a plan fits, in place of a run.
  Result<LikelyFit> likely_fit();

 private:
  // Lowerings that a search may spend once it has a plan.
  static constexpr int64_t kMostWithPlan = 32;
  // Finalists are predicted to take no longer than so many times the fastest.
  static constexpr double kFinalistTime = 1.5;

  Status begin();
  int64_t tokens() const;
  MinMemoryGoal goal(int64_t enough, bool nothing_else = false) const;
  bool is_effort_spent() const { return options_.effort != nullptr && options_.effort->left <= 0; }
  void come_up(const SpaceNode& node, double at_least_s, int64_t saves_from = INT64_MAX);
  // Until nothing that is open can be faster than the fastest that fits, which is returned with all its ranks
  // lowered; the number of attempts when none fits.
  Result<size_t> explore();
  void look_at(const OpenPlan& open);
  void save(const SpaceNode& node, double at_least_s, int64_t bytes);
  // Index of the fastest that fits; ties go to fewer collectives, then to what came up first.
  size_t fastest() const;
  // As it will run. A set of activations that so turns out too large is chosen again, with as much less to
  // fit in.
  Status finalize(size_t which);
  int64_t spent() const;

  // --- sets of activations to recompute (search_sets.cc) ---

  bool may_choose_sets() const;
  // Without words; single decisions that are given may lie in other parts than its bounds count.
  bool may_choose_smallest() const;
  // What it costs that a strategy which takes so many bytes fits by computing some of it again, at least and
  // likely; infinite where no set at all would do.
  std::pair<double, double> seconds_again(const StrategySpec& spec, int64_t bytes);
  // What is too large only when it keeps everything, and else faster than the plan in hand, if there is one:
  // with no more computed again than the limit asks for. What is likely to lose least comes first.
  size_t try_sets(size_t best);
  Result<size_t> recompute_some(size_t best);

  // --- what is measured (search_finalists.cc) ---

  bool decides_by_measuring() const;
  // Those to be measured: the fastest of each family, then the next of any.
  Result<std::vector<size_t>> finalists(size_t best);
  Result<size_t> fastest_measured(size_t best);

  // --- the answer (search_answer.cc) ---

  // No step of the node, or of what saves memory from it, is faster: what cannot fit is left for what is
  // below.
  double bound_below(const SpaceNode& node);
  double bound_of_sets(const SpaceNode& node);
  // `none`: known not to be.
  Result<PlanResult> any_within(bool none);
  PlanResult any_of(size_t which);
  PlanResult result_of(size_t best);
  Result<PlanResult> nothing_fits();

  const Graph& graph_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  const PlanOptions& options_;
  const int64_t limit_;
  Graph bound_graph_;  // symbols bound but for B
  const PlanAttempts trials_;
  SpaceOfGraph space_;
  SearchRoots roots_;
  bool may_save_ = true;          // what saves memory may come up
  PlanBounds* bounds_ = nullptr;  // from the beginning of a run on
  bool is_single_ = false;        // one strategy to begin with: what is searched only saves memory
  bool bounds_hold_ = true;
  double trust_ = 1;         // bounds count for that much
  double likely_trust_ = 1;  // and what is likely
  PlanQueue queue_;
  std::vector<OpenPlan> closed_;              // by their bounds
  std::vector<SpaceNode> held_back_;          // while what is as worded may still fit
  std::vector<OpenPlan> hopeless_;            // too large by what their bounds say
  std::set<std::string> with_sets_;           // for which a set was looked for
  bool sets_tried_ = false;                   // before there was a plan
  int64_t skipped_ = 0;                       // of those, by what waits for backward
  const MinMemorySpace* smallest_ = nullptr;  // where the smallest may be looked for
  std::optional<PlanAttempt> least_;          // that it found
  std::vector<PlanAttempt> attempts_;
  PlanSearch search_;
  int64_t without_ = 0;  // lowerings before there was a plan
};

}  // namespace tessera
