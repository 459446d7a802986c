#include "parallel/planner/kind_factors.h"

#include <algorithm>

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

double KindFactors::guess_s(const StrategySpec& spec, double likely_s) const {
  double factor = 1;
  for (const auto& [kind, seen] : factors_)
    if ((kind & ~kind_of(spec)) == 0) factor = std::max(factor, seen);
  return likely_s * (factor + usual_overhead(spec));
}

double KindFactors::evaluated(const StrategySpec& spec) const {
  const auto at = evaluated_.find(kind_of(spec));
  return at == evaluated_.end() ? 0 : static_cast<double>(at->second);
}

void KindFactors::learn(const StrategySpec& spec, double likely_s, double step_s) {
  if (likely_s <= 0) return;
  const double factor = step_s / likely_s - usual_overhead(spec);
  const auto [at, is_new] = factors_.try_emplace(kind_of(spec), factor);
  if (!is_new) at->second = std::min(at->second, factor);
}

}  // namespace tessera
