#include "parallel/planner/search_run.h"

#include <algorithm>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/progress.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/workspace_floor.h"
#include "parallel/pricing/host_tier.h"

namespace tessera {

namespace {

// Lowerings before a plan is found.
constexpr int64_t kMostWithout = 160;
// Share of planning effort; the rest is for the steps after the search.
constexpr double kSearchShare = 0.8;
// After this many misses, descendants of the smallest come first.
constexpr int64_t kBeforeSmallest = 40;
// Configurations excluded by bytes alone, per lowering.
constexpr int64_t kSkippedForOne = 16;

}  // namespace

SearchRun::SearchRun(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                     const PlanOptions& options)
    : graph_(graph),
      cluster_(cluster),
      catalog_(catalog),
      options_(options),
      limit_(memory_limit(cluster, options)),
      trials_(graph, bound_graph_, cluster, catalog, options, limit_) {}

Status SearchRun::begin() {
  TSR_ASSIGN_OR_RETURN(bound_graph_, graph_.bind_partly(options_.symbols));
  space_ = space_of(graph_, options_.global_batch, tokens(), offload_tier(cluster_));
  TSR_ASSIGN_OR_RETURN(roots_, search_roots(space_, options_, static_cast<int32_t>(cluster_.devices.size())));
  may_save_ = !roots_.has_words;
  return {};
}

Result<int64_t> SearchRun::least_bytes() {
  TSR_RETURN_IF_ERROR(begin());
  if (!may_choose_smallest()) return 0;
  PlanBounds bounds(bound_graph_, space_, cluster_, catalog_);
  WorkspaceFloor working(bound_graph_, space_);
  return least_plan_bytes({roots_.specs, space_, roots_.pins, bounds, working, trials_});
}

Result<LikelyFit> SearchRun::likely_fit() {
  if (const Status status = begin(); !status.ok()) return LikelyFit{Fit::kNo, {}, 0};  // of the pins
  LikelyFit it;
  if (!options_.pins.empty()) return it;
  PlanBounds bounds(bound_graph_, space_, cluster_, catalog_);
  WorkspaceFloor working(bound_graph_, space_);
  const MinMemorySpace smallest{roots_.specs, space_, roots_.pins, bounds, working, trials_};
  if (exceeds_memory(smallest, limit_)) return LikelyFit{Fit::kNo, {}, 0};
  if (!may_choose_smallest()) return it;
  const std::optional<LikelyPlan> likely = find_likely_plan(smallest, goal(limit_, true));
  if (!likely) {
    if (!is_effort_spent()) it.fit = Fit::kNo;
    return it;
  }
  TSR_ASSIGN_OR_RETURN(it.plan, trials_.plan_of(likely->node));
  it.fit = Fit::kLikely;
  it.instructions = likely->instructions;
  return it;
}

MinMemoryGoal SearchRun::goal(int64_t enough, bool nothing_else) const {
  return {enough, nothing_else, options_.factors, options_.effort, cluster_.shared_cores != 1};
}

Result<PlanResult> SearchRun::run() {
  TSR_RETURN_IF_ERROR(begin());
  PlanBounds bounds(bound_graph_, space_, cluster_, catalog_);
  bounds_ = &bounds;
  is_single_ = roots_.specs.size() == 1;
  WorkspaceFloor working(bound_graph_, space_);
  const MinMemorySpace smallest{roots_.specs, space_, roots_.pins, bounds, working, trials_};
  if (may_choose_smallest()) smallest_ = &smallest;
  const bool none = smallest_ != nullptr && exceeds_memory(smallest, limit_);
  if (options_.is_excluded != nullptr) *options_.is_excluded = none;
  if (options_.any_that_fits && smallest_ != nullptr) return any_within(none);
  // Pins are meant literally: options that they leave
  // open stay off unless nothing fits otherwise.
  std::vector<StrategySpec> plain, others;
  for (const StrategySpec& spec : roots_.specs) (roots_.is_as_worded(spec) ? plain : others).push_back(spec);
  for (const StrategySpec& spec : plain) come_up({spec, SavingStep::kNone}, 0);
  size_t best = attempts_.size();
  // If even parameters and saved activations are too large for every strategy
  // that keeps them, the smallest of the others decides feasibility fastest.
  const bool is_tight = !none && smallest_ != nullptr && std::ranges::all_of(roots_.specs, [&](const StrategySpec& it) {
    return bounds.bytes(it) > limit_;
  });
  if (is_tight) {
    TSR_ASSIGN_OR_RETURN(least_, find_min_memory_plan(*smallest_, goal(limit_)));
  }
  // Any smaller limit would have the same result.
  if (is_tight && !(least_ && least_->fits()) && options_.is_excluded != nullptr) *options_.is_excluded = true;
  if (!none && (!is_tight || (least_ && least_->fits()))) {
    TSR_ASSIGN_OR_RETURN(best, explore());
  }
  if (best == attempts_.size() && !others.empty()) {
    for (const StrategySpec& spec : others) come_up({spec, SavingStep::kNone}, 0);
    for (const SpaceNode& node : std::exchange(held_back_, {})) come_up(node, 0);
    may_save_ = true;
    TSR_ASSIGN_OR_RETURN(best, explore());
  }
  if (best == attempts_.size()) {
    if (options_.any_that_fits) return Status(StatusCode::kOutOfMemory, "no plan fits");
    if (!least_ || !least_->fits()) return nothing_fits();
    attempts_.push_back(*least_);
    return result_of(best);
  }
  if (options_.any_that_fits) return any_of(best);
  TSR_ASSIGN_OR_RETURN(best, recompute_some(best));
  if (!decides_by_measuring()) return result_of(best);
  TSR_ASSIGN_OR_RETURN(best, fastest_measured(best));
  return result_of(best);
}

int64_t SearchRun::tokens() const {
  for (const auto& [name, value] : options_.symbols)
    if (name == "T") return value;
  return 0;
}

void SearchRun::come_up(const SpaceNode& node, double at_least_s, int64_t saves_from) {
  cancellation_point();
  ++search_.configurations;
  double bound_s = 0, likely_s = at_least_s;
  if (options_.like == nullptr) {
    bound_s = bounds_->seconds(node.spec);
    // Its own work only; overheads of savings order the search separately.
    StrategySpec plain = node.spec;
    plain.recompute = RecomputeForm::kNone;
    plain.offload = {};
    likely_s = std::max(likely_s, bounds_->seconds(plain));
  }
  queue_.push(node, bound_s, likely_s, saves_from);
}

Result<size_t> SearchRun::explore() {
  for (;;) {
    size_t best = fastest();
    while (!queue_.empty()) {
      const bool found = best < attempts_.size();
      if (found && options_.any_that_fits) break;
      if (!found) without_ = spent();
      const int64_t used = found ? spent() - without_ : spent();
      const int64_t most = found ? (decides_by_measuring() ? 2 : 1) * kMostWithPlan : kMostWithout;
      if (used >= most || (!found && is_effort_spent())) break;
      report_progress(kSearchShare * static_cast<double>(used) / static_cast<double>(most));
      if (!found && !sets_tried_ && spent() >= kBeforeSmallest && may_choose_sets()) {
        sets_tried_ = true;
        best = try_sets(best);
        continue;
      }
      if (!found && !least_ && smallest_ != nullptr && spent() >= kBeforeSmallest) {
        TSR_ASSIGN_OR_RETURN(least_, find_min_memory_plan(*smallest_, goal(limit_)));
        if (!least_ || !least_->fits()) break;
      }
      OpenPlan open = queue_.take(!found && search_.solved >= kBeforeSmallest);
      if (found && std::max(open.likely_s * likely_trust_, open.bound_s * trust_) >=
                       attempts_[best].candidate.step_time_s * (decides_by_measuring() ? kFinalistTime : 1)) {
        closed_.push_back(std::move(open));
        continue;
      }
      look_at(open);
      best = fastest();
    }
    if (best == attempts_.size() || attempts_[best].exact) return best;
    TSR_RETURN_IF_ERROR(finalize(best));
    // Its time may have risen, and with it the closing bound.
    for (OpenPlan& open : std::exchange(closed_, {})) queue_.put_back(std::move(open));
  }
}

void SearchRun::look_at(const OpenPlan& open) {
  // A single strategy has few ways to save memory: all are lowered, which is more precise than bounds.
  if (!is_single_ && bounds_->bytes(open.node.spec) > limit_) {
    ++search_.too_large;
    // Parameters and state are cheap to bound.
    skipped_ += bounds_->persistent_bytes(open.node.spec) <= limit_;
    hopeless_.push_back(open);
    return save(open.node, open.likely_s, bounds_->bytes(open.node.spec));
  }
  attempts_.push_back(trials_.make(open.node));
  queue_.count(open);
  const PlanAttempt& it = attempts_.back();
  if (options_.effort != nullptr) options_.effort->left -= it.instructions * std::max(1, it.lowerings);
  if (!it.lowered) {
    ++search_.refused;
    return;
  }
  ++search_.solved;
  const double seconds = it.candidate.step_time_s;
  // Simulated times are whole nanoseconds per instruction.
  if (seconds < open.bound_s * trust_ * (1 - 1e-4)) {
    trust_ = seconds / open.bound_s;
    bounds_hold_ = false;
  }
  if (seconds < open.likely_s * likely_trust_ * (1 - 1e-4)) likely_trust_ = seconds / open.likely_s;
  queue_.learn(open, seconds);
  if (it.fits()) return;
  ++search_.too_large;
  save(open.node, std::max(open.likely_s, seconds), it.candidate.arena_bytes);
}

void SearchRun::save(const SpaceNode& node, double at_least_s, int64_t bytes) {
  if (options_.like != nullptr) return;
  for (const SpaceNode& below : savings_of(node, space_, roots_.pins, roots_.has_words))
    if (may_save_)
      come_up(below, at_least_s, bytes);
    else
      held_back_.push_back(below);
}

size_t SearchRun::fastest() const {
  size_t best = attempts_.size();
  for (size_t i = 0; i < attempts_.size(); ++i)
    if (attempts_[i].fits() && (best == attempts_.size() || is_better(attempts_[i], attempts_[best]))) best = i;
  return best;
}

Status SearchRun::finalize(size_t which) {
  PlanAttempt& it = attempts_[which];
  TSR_RETURN_IF_ERROR(trials_.lower_whole(it));
  if (it.fits()) return {};
  ++search_.too_large;
  const int64_t excess = it.candidate.arena_bytes - limit_;
  if (it.node.spec.recompute == RecomputeForm::kSome && it.limit > 0 && it.limit == limit_) {
    PlanAttempt smaller = trials_.make(it.node, limit_ - excess, INFINITY);
    smaller.limit = limit_ - excess;
    attempts_.push_back(std::move(smaller));
    return {};
  }
  save(it.node, it.candidate.step_time_s, it.candidate.arena_bytes);
  return {};
}

int64_t SearchRun::spent() const { return search_.solved + skipped_ / kSkippedForOne; }

}  // namespace tessera
