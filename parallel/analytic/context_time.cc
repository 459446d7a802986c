#include "parallel/analytic/context_time.h"

#include <algorithm>

namespace tessera {

namespace {

// Communication beside computation holds about a fifth of the multiprocessors meanwhile.
constexpr double kInterference = 0.2;

}  // namespace

ContextTime context_time(const Cluster& cluster, const ForeignPlan& plan, double qkv_bytes,
                         double mixed_bytes, double beside_s, bool backward) {
  if (plan.cp < 2) return {};
  const RankGroup group = group_of(cluster, plan.cp, plan.tp);
  const double parts = plan.cp;
  if (plan.context == ContextForm::kUlysses)
    return {all_to_all_seconds(cluster, group, qkv_bytes * parts) +
                all_to_all_seconds(cluster, group, mixed_bytes * parts),
            4};
  // Queries are as large as what attention yields; the rest is keys and values. A ring's rounds and a gather
  // move the same, (cp - 1) parts.
  const double round = gather_seconds(cluster, group, (qkv_bytes - mixed_bytes) * parts);
  const double moved = (backward ? 2 : 1) * round;
  if (plan.context == ContextForm::kGather) return {moved, backward ? 2.0 : 1.0};
  const double hidden = std::min(moved, beside_s * (parts - 1) / parts);
  return {moved - hidden + kInterference * hidden, (backward ? 2 : 1) * (parts - 1)};
}

}  // namespace tessera
