#include "parallel/planner/plan_queue.h"

#include <algorithm>
#include <utility>

namespace tessera {

namespace {

// Usual overhead of each option beyond its bound: synchronization, launches, uneven parts.
// So simple strategies come first, and the plan is good before many bounds are tested.
double usual_overhead(const StrategySpec& spec) {
  double share = 0.001 * (spec.devices() - 1);
  if (spec.dp > 1) share += 0.02;
  if (spec.tp > 1) share += spec.form == TensorForm::k1d ? 0.1 : 0.3;
  if (spec.cp > 1) share += 0.1;
  if (spec.ep > 1) share += 0.03;
  if (spec.pp > 1) share += spec.schedule == ScheduleKind::k1F1B ? 0.03 : 0.05;
  if (spec.zero == 3) share += 0.03;
  if (spec.micro_batch > 0) share += 0.02;
  if (spec.chunks > 1) share += 0.1;
  if (spec.recompute == RecomputeForm::kFull) share += 0.2;
  if (spec.recompute == RecomputeForm::kSome) share += 0.1;
  if (spec.offload.any()) share += 0.1;
  return share;
}

}  // namespace

uint32_t kind_of(const StrategySpec& spec) {
  return (spec.dp > 1 ? 1U : 0U) | (spec.tp > 1 ? 2U : 0U) | (spec.cp > 1 ? 4U : 0U) |
         (spec.ep > 1 ? 8U : 0U) | (spec.pp > 1 ? 16U : 0U) | (spec.form != TensorForm::k1d ? 32U : 0U);
}

void PlanQueue::push(SpaceNode node, double bound_s, double likely_s, int64_t saves_from) {
  const uint32_t kind = kind_of(node.spec);
  open_.push_back({bound_s, likely_s, next_order_++, std::move(node), kind, saves_from});
}

double PlanQueue::guess_s(const OpenPlan& open) const {
  double factor = 1;
  for (const auto& [kind, seen] : factors_)
    if ((kind & ~open.kind) == 0) factor = std::max(factor, seen);
  return open.likely_s * (factor + usual_overhead(open.node.spec));
}

OpenPlan PlanQueue::take(bool smallest_first) {
  const auto score = [&](const OpenPlan& open) {
    if (!smallest_first) return std::pair{int64_t{0}, guess_s(open)};
    const auto looked_at = looked_at_.find(open.kind);
    return std::pair{looked_at == looked_at_.end() ? int64_t{0} : looked_at->second,
                     static_cast<double>(open.saves_from)};
  };
  size_t next = 0;
  auto least = score(open_[0]);
  for (size_t i = 1; i < open_.size(); ++i) {
    const auto it = score(open_[i]);
    if (it < least || (it == least && open_[i].order < open_[next].order)) next = i, least = it;
  }
  OpenPlan open = std::move(open_[next]);
  open_[next] = std::move(open_.back());
  open_.pop_back();
  return open;
}

void PlanQueue::learn(const OpenPlan& open, double step_s) {
  if (open.likely_s <= 0) return;
  const double factor = step_s / open.likely_s - usual_overhead(open.node.spec);
  const auto [at, is_new] = factors_.try_emplace(open.kind, factor);
  if (!is_new) at->second = std::min(at->second, factor);
}

}  // namespace tessera
