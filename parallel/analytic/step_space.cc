#include "parallel/analytic/step_space.h"

#include <algorithm>

#include "parallel/search/divisors.h"

namespace tessera {

std::vector<ForeignPlan> step_space(const TransformerShape& model, const Cluster& cluster,
                                    const StepSearchOptions& options, bool coarse) {
  std::vector<ForeignPlan> plans;
  const int32_t cp = options.features.cp, ep = options.features.ep;
  const auto devices = static_cast<int64_t>(cluster.devices.size()) / cp / ep;
  for (const int32_t tp : divisors(devices)) {
    if (!allowed(options.tp, tp) || model.H % tp != 0 || (model.KV % tp != 0 && tp % model.KV != 0)) continue;
    for (const int32_t pp : divisors(devices / tp)) {
      const auto dp = static_cast<int32_t>(devices / tp / pp);
      if (!allowed(options.pp, pp) || !allowed(options.dp, dp) || pp > model.L ||
          options.global_batch % (int64_t{dp} * ep) != 0)
        continue;
      for (const int32_t mb : divisors(options.global_batch / dp / ep)) {
        if (!allowed(options.micro_batch, int64_t{mb})) continue;
        int32_t least = 1;
        for (int32_t chunks = 1; chunks <= model.L / pp && (pp > 1 || chunks == 1); ++chunks) {
          if (!allowed(options.virtual_stages, chunks) || chunks < least) continue;
          if (chunks > 1 &&
              (model.L % (int64_t{pp} * chunks) != 0 || options.global_batch / dp / ep / mb % pp != 0))
            continue;
          if (coarse) least = 2 * chunks;
          for (const int32_t zero : {0, 1, 2, 3}) {
            if (!allowed(options.zero, zero) || (dp == 1 && zero > 0 && !options.zero)) continue;
            for (const bool sp : {true, false}) {
              if (options.pin_sequence_parallel ? sp != options.features.sequence_parallel : (sp && tp == 1))
                continue;
              ForeignPlan plan = options.features;
              plan.tp = tp, plan.dp = dp, plan.pp = pp, plan.micro_batch = mb, plan.zero = zero;
              plan.virtual_stages = chunks;
              plan.schedule = chunks > 1 ? ForeignSchedule::kInterleaved : ForeignSchedule::k1F1B;
              plan.sequence_parallel = sp;
              plans.push_back(plan);
            }
          }
        }
      }
    }
  }
  return plans;
}

}  // namespace tessera
