#include "parallel/analytic/after_bound.h"

#include <algorithm>
#include <cmath>

#include "parallel/analytic/block_ways.h"
#include "parallel/analytic/step_time.h"

namespace tessera {

double backward_share(const StageTimes& times, const StepSearchOptions& options, const ForeignPlan& plan) {
  double share = 0;
  const auto note = [&](double forward_s, double backward_s) {
    if (forward_s + backward_s > 0) share = std::max(share, backward_s / (forward_s + backward_s));
  };
  const bool both[] = {true, false};
  for (const bool first : both)
    for (const bool last : both) {
      const StagePasses ends = times.of({}, first, last);
      note(ends.forward_s, ends.backward_s);
    }
  for (const Recompute way : recomputations(options, plan))
    for (int32_t quarters = 0; quarters <= (way == Recompute::kNone ? 4 : 0); ++quarters) {
      const StagePasses one = times.of(blocks_of(1, {way, quarters, 0}), false, false),
                        two = times.of(blocks_of(2, {way, quarters, 0}), false, false);
      note(two.forward_s - one.forward_s, two.backward_s - one.backward_s);
    }
  return share;
}

AfterBound::AfterBound(const TransformerShape& model, const Cluster& cluster,
                       const StepSearchOptions& options, const ForeignPlan& plan, double backward_share)
    : model_(model),
      cluster_(cluster),
      plan_(plan),
      m_(options.global_batch / (plan.micro_batch * plan.data())),
      share_(backward_share) {}

double AfterBound::step_s(double pipeline_s, const StageParameters& own) const {
  const AfterParts parts(model_, plan_, cluster_, m_, own);
  const double m = static_cast<double>(m_);
  const auto total = [&](double p) {
    const AfterPipeline after = parts.beside(share_ * p / m);
    return p + after.gradients_s + after.update_s;
  };
  // The sum is straight but where a part has hidden what it can.
  double least = total(pipeline_s);
  for (const double backward_s : parts.all_hidden_s())
    if (const double p = backward_s * m / share_; p > pipeline_s && std::isfinite(p))
      least = std::min(least, kBoundSlack * total(p));
  return least;
}

double AfterBound::least_s(const StageParameters& own) const {
  const AfterPipeline after = after_pipeline(model_, plan_, cluster_, m_, own, 1e30);
  return after.gradients_s + after.update_s;
}

StageParameters average_of(StageParameters own, int32_t parts) {
  for (double* part :
       {&own.dense, &own.experts, &own.trained, &own.trained_experts, &own.sharded, &own.trained_sharded})
    *part /= parts;
  return own;
}

}  // namespace tessera
