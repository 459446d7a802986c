#include "parallel/analytic/steady_step.h"

#include <tuple>

#include "parallel/search/divisors.h"

namespace tessera {

bool may_stand_for(const ForeignPlan& plan, const ForeignPlan& fastest) {
  return plan.pp == fastest.pp && fastest.tp % plan.tp == 0 && fastest.micro_batch % plan.micro_batch == 0;
}

bool steadier(const ForeignPlan& plan, const ForeignPlan& other) {
  return std::tuple(plan.tp, plan.micro_batch) < std::tuple(other.tp, other.micro_batch);
}

std::optional<FoundStep> steady_step(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options, const StepSearchResult& search,
                                     double within) {
  const ForeignPlan& fastest = search.best.plan;
  const double most = search.best.time.step_s * (1 + within);
  if (within <= 0) return std::nullopt;
  StepSearchOptions pinned = options;
  pinned.pp = fastest.pp;
  pinned.advise = pinned.last_resort = false;
  pinned.runners_up = 0;
  if (search.last_resort) pinned.shard = pinned.offload = true;
  // The least above it counts as fast enough.
  pinned.most_s = most * (1 + 1e-12);
  if (options.wide) {
    pinned.cp = fastest.cp, pinned.ep = fastest.ep;
    pinned.features.context = fastest.context;
  }
  for (const int32_t tp : divisors(fastest.tp)) {
    if (!allowed(options.tp, tp)) continue;
    for (const int32_t mb : divisors(fastest.micro_batch)) {
      if (!allowed(options.micro_batch, int64_t{mb})) continue;
      if (tp == fastest.tp && mb == fastest.micro_batch) return std::nullopt;
      pinned.tp = tp, pinned.micro_batch = mb;
      auto found = search_step(model, cluster, pinned);
      if (found.ok() && found->best.time.step_s <= most) return std::move(found->best);
    }
  }
  return std::nullopt;
}

}  // namespace tessera
