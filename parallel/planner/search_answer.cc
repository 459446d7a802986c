// Result of a plan search: the plan and its alternatives,
// the gap to the bound, or the reason of failure.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "graph/base/text.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/search_run.h"

namespace tessera {

double SearchRun::bound_below(const SpaceNode& node) {
  if (options_.like != nullptr) return 0;
  if (bounds_->bytes(node.spec) <= limit_) return bounds_->seconds(node.spec);
  double bound_s = may_save_ && !roots_.has_words ? bound_of_sets(node) : INFINITY;
  if (may_save_)
    for (const SpaceNode& below : savings_of(node, space_, roots_.pins, roots_.has_words))
      bound_s = std::min(bound_s, bound_below(below));
  return bound_s;
}

double SearchRun::bound_of_sets(const SpaceNode& node) {
  if (node.spec.recompute != RecomputeForm::kNone) return INFINITY;
  const double kept_s = bounds_->seconds_within(node.spec, limit_);
  return node.spec.offload.activations != Tier::kDevice
             ? kept_s
             : std::min(kept_s, bounds_->seconds_within(with_moves(node.spec, space_.away), limit_));
}

Result<PlanResult> SearchRun::any_within(bool none) {
  std::optional<PlanAttempt> any;
  if (!none) {
    TSR_ASSIGN_OR_RETURN(any, find_min_memory_plan(*smallest_, goal(limit_, true)));
  }
  if (!any || !any->fits()) return Status(StatusCode::kOutOfMemory, "no plan fits");
  attempts_.push_back(std::move(*any));
  return any_of(0);
}

PlanResult SearchRun::any_of(size_t which) {
  PlanResult result;
  result.plan = std::move(attempts_[which].plan);
  result.candidates = {std::move(attempts_[which].candidate)};
  result.search = std::move(search_);
  return result;
}

PlanResult SearchRun::result_of(size_t best) {
  PlanResult result;
  result.plan = std::move(attempts_[best].plan);
  const double time_s = result.plan.estimate.step_time_s;
  search_.bound_s = time_s;
  for (const PlanAttempt& it : attempts_)  // a measured plan may be predicted slower than another
    if (it.fits()) search_.bound_s = std::min(search_.bound_s, it.candidate.step_time_s);
  closed_.insert(closed_.end(), queue_.open().begin(), queue_.open().end());
  for (OpenPlan& open : closed_) open.bound_s = bound_below(open.node) * trust_;
  std::ranges::sort(closed_, [](const OpenPlan& a, const OpenPlan& b) {
    return a.bound_s != b.bound_s ? a.bound_s < b.bound_s : a.order < b.order;
  });
  for (const OpenPlan& open : closed_) {
    ++(open.bound_s >= time_s ? search_.closed_by_bound : search_.open);
    search_.bound_s = std::min(search_.bound_s, open.bound_s);
    constexpr size_t kListed = 64;
    if (search_.closed.size() < kListed && std::isfinite(open.bound_s))
      search_.closed.push_back({to_text(open.node.spec), open.bound_s});
  }
  // Recompute sets that were not tried.
  if (may_save_ && !roots_.has_words && space_.trains) {
    for (const PlanAttempt& it : attempts_)
      if (it.lowered && !it.fits())
        search_.bound_s = std::min(search_.bound_s, bound_of_sets(it.node) * trust_);
    for (const OpenPlan& open : hopeless_)
      search_.bound_s = std::min(search_.bound_s, bound_of_sets(open.node) * trust_);
  }
  search_.gap = !bounds_hold_ ? -1 : time_s > 0 ? (time_s - search_.bound_s) / time_s : 0;
  result.plan.estimate.gap = search_.gap;
  std::rotate(attempts_.begin(), attempts_.begin() + static_cast<std::ptrdiff_t>(best),
              attempts_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  // Measured plans by their time, before the others.
  std::stable_sort(attempts_.begin() + 1, attempts_.end(), [](const PlanAttempt& a, const PlanAttempt& b) {
    const double mine = a.candidate.measured_s, other = b.candidate.measured_s;
    if (mine > 0 || other > 0) return mine > 0 && (other <= 0 || mine < other);
    return is_better(a, b);
  });
  for (PlanAttempt& it : attempts_) result.candidates.push_back(std::move(it.candidate));
  result.search = std::move(search_);
  return result;
}

Result<PlanResult> SearchRun::nothing_fits() {
  if (smallest_ != nullptr && !least_) {
    TSR_ASSIGN_OR_RETURN(least_, find_min_memory_plan(*smallest_, goal(0)));
  }
  // Plans excluded by bounds may still contain the smallest.
  if (least_) {
    attempts_.push_back(std::move(*least_));
    hopeless_.clear();
  }
  std::ranges::stable_sort(hopeless_, {}, [&](const OpenPlan& it) { return bounds_->bytes(it.node.spec); });
  int64_t more = 0;
  for (const OpenPlan& open : hopeless_) {
    int64_t least = INT64_MAX;
    for (const PlanAttempt& it : attempts_)
      if (it.lowered) least = std::min(least, it.candidate.arena_bytes);
    if (bounds_->bytes(open.node.spec) >= least || more++ == kMostWithPlan) break;
    attempts_.push_back(trials_.make(open.node));
  }
  std::ranges::stable_sort(attempts_, is_better);
  if (attempts_.empty()) return Status(StatusCode::kInvalidArgument, "there is no strategy to try");
  for (;;) {
    PlanAttempt& least = attempts_[0];
    if (!least.lowered) return least.failure.with_context(format("strategy '{}'", least.candidate.strategy));
    if (!least.exact) {
      TSR_RETURN_IF_ERROR(finalize(0));
      std::ranges::stable_sort(attempts_, is_better);
      continue;
    }
    if (options_.least_limit != nullptr) *options_.least_limit = least.candidate.arena_bytes;
    if (options_.smallest != nullptr) *options_.smallest = least.plan;
    return Status(StatusCode::kOutOfMemory,
                  format("no plan fits {} a device; the smallest limit that works is {} ({} bytes) with "
                         "'{}'. Its peak: {}",
                         bytes_text(limit_), bytes_text(least.candidate.arena_bytes),
                         least.candidate.arena_bytes, least.candidate.strategy, least.peak))
        .with_number("needed_bytes", least.candidate.arena_bytes)
        .with_number("limit_bytes", limit_)
        .with_number("smallest_limit_bytes", least.candidate.arena_bytes);
  }
}

}  // namespace tessera
