// Predicted time of one training step of a transformer under a foreign plan: every kernel of a block priced
// from the device's rates, every collective from the cluster's links, the schedule replayed stage by stage.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "parallel/analytic/device_time.h"
#include "parallel/analytic/foreign_plan.h"
#include "parallel/analytic/transformer.h"

namespace tessera {

struct StepTime {
  double step_s = 0;
  // Of the slowest stage, summed over its micro-batches.
  double compute_s = 0;        // kernels and waiting for the host that issues them
  double recompute_s = 0;      // of which: forward again
  double communication_s = 0;  // tensor-parallel collectives and sends between stages
  double bubble_s = 0;         // waiting for other stages
  double gradients_s = 0;      // reduction over dp that is not hidden
  double update_s = 0;         // optimizer
};

// Fails where check_foreign_plan does.
Result<StepTime> step_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                           int64_t global_batch);

}  // namespace tessera
