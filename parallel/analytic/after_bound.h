// The least that a pipeline takes with what comes after it: gradients between replicas, and the update.
#pragma once

#include <cstdint>

#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

StageParameters average_of(StageParameters all, int32_t parts);

// The largest share of backward in any stage's time, which bounds what can hide beside it: that of its ends
// with what it sends, or of a block.
double backward_share(const StageTimes& times, const StepSearchOptions& options, const ForeignPlan& plan);

// Of a pipeline and what comes after it. Holds references.
class AfterBound {
 public:
  AfterBound(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
             const ForeignPlan& plan, double backward_share);

  // The least of pipelines of P seconds or more and what comes after. No device holds fewer parameters than
  // `own`, and no backward pass that hides communication lasts longer than its share of P / m. What hides
  // beside every micro-batch may gain more by a longer pipeline than that costs; the sum is convex in P.
  double step_s(double pipeline_s, const StageParameters& own) const;
  // What comes after a pipeline, however long it is.
  double least_s(const StageParameters& own) const;

 private:
  const TransformerShape& model_;
  const Cluster& cluster_;
  const ForeignPlan& plan_;
  const int64_t m_;
  const double share_;
};

}  // namespace tessera
