// Recompute sets (recompute_search.h) and offload
// sets (activation_offload.h) within a plan search.
#include <algorithm>
#include <cmath>
#include <utility>

#include "parallel/planner/search_run.h"

namespace tessera {

namespace {

// Lowerings, and configurations, per search for recompute sets.
constexpr int64_t kMostForSets = 36, kMostSets = 12;
// Factor over the present plan within which a likely time may still turn out faster.
constexpr double kSurprise = 1.03;

}  // namespace

bool SearchRun::may_choose_sets() const {
  return may_save_ && !roots_.has_words && options_.like == nullptr && space_.trains;
}

bool SearchRun::may_choose_smallest() const { return may_choose_sets() && options_.pins.empty(); }

std::pair<double, double> SearchRun::seconds_again(const StrategySpec& spec, int64_t bytes) {
  // Cheapest operation: reads two values to write one.
  const double rate = cluster_.kinds.empty() ? 0 : cluster_.kinds[0].memory_bytes_per_s;
  const double cheap_s = rate > 0 ? 3 * static_cast<double>(bytes - limit_) / rate : 0;
  StrategySpec kept = spec;
  kept.offload.activations = Tier::kDevice;
  const double kept_s = bounds_->seconds(kept), least_s = bounds_->seconds_within(spec, limit_) - kept_s;
  // Bytes unknown to the bounds remain; if no set then suffices, possibly none does.
  const int64_t unseen = std::max<int64_t>(0, bytes - bounds_->bytes(spec));
  const double likely_s = bounds_->seconds_within(spec, limit_ - unseen) - kept_s;
  constexpr double kDoubt = 0.02;
  return {least_s, std::isinf(likely_s) ? std::max(least_s, cheap_s) + kDoubt * kept_s : likely_s};
}

size_t SearchRun::try_sets(size_t best) {
  struct Promise {
    double likely_s = 0, least_s = 0;
    SpaceNode node;
  };
  std::vector<Promise> again, moved;
  const auto consider_one = [&](const StrategySpec& spec, double step_s, int64_t bytes) {
    const auto [least_s, likely_s] = seconds_again(spec, bytes);
    if (std::isinf(least_s)) return;
    SpaceNode node{spec, SavingStep::kRecompute};
    node.spec.recompute = RecomputeForm::kSome;
    auto& order = spec.offload.activations == Tier::kDevice ? again : moved;
    order.push_back({step_s + likely_s, step_s + least_s, node});
  };
  const auto consider = [&](const StrategySpec& spec, double step_s, int64_t bytes) {
    consider_one(spec, step_s, bytes);
    if (spec.offload.activations == Tier::kDevice) consider_one(with_moves(spec, space_.away), step_s, bytes);
  };
  for (const PlanAttempt& it : attempts_)
    if (it.lowered && !it.fits() && it.node.spec.recompute == RecomputeForm::kNone)
      consider(it.node.spec, it.candidate.step_time_s, it.candidate.arena_bytes);
  for (const OpenPlan& it : hopeless_)
    if (it.node.spec.recompute == RecomputeForm::kNone && bounds_->persistent_bytes(it.node.spec) <= limit_)
      consider(it.node.spec, queue_.guess_s(it), bounds_->bytes(it.node.spec));
  for (auto* order : {&again, &moved}) {
    std::ranges::stable_sort(*order, {}, &Promise::likely_s);
    int64_t more = 0, lowerings = 0;
    for (const auto& [likely_s, least_s, node] : *order) {
      const double beat_s = best < attempts_.size() ? attempts_[best].candidate.step_time_s : INFINITY;
      if (more == kMostSets || lowerings >= kMostForSets || likely_s >= kSurprise * beat_s) break;
      if (least_s >= beat_s) continue;
      if (!with_sets_.insert(to_text(node.spec)).second) continue;
      ++more;
      ++search_.configurations;
      attempts_.push_back(trials_.make(node, limit_, beat_s));
      const PlanAttempt& it = attempts_.back();
      lowerings += it.lowerings;
      ++(it.lowered ? search_.solved : search_.refused);
      if (it.lowered && !it.fits()) ++search_.too_large;
      best = fastest();
    }
  }
  return best;
}

Result<size_t> SearchRun::recompute_some(size_t best) {
  if (!may_choose_sets()) return best;
  best = try_sets(best);
  while (!attempts_[best].exact) {
    TSR_RETURN_IF_ERROR(finalize(best));
    best = fastest();
  }
  return best;
}

}  // namespace tessera
