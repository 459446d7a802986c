// One transformer block, and what stands before the first and after the last, as passes: device time,
// collectives, and how many kernels the host issues for it.
#pragma once

#include "parallel/analytic/device_time.h"
#include "parallel/analytic/foreign_plan.h"
#include "parallel/analytic/transformer.h"

namespace tessera {

struct Pass {
  double compute_s = 0;
  double collective_s = 0;
  double kernels = 0;

  // An eager host issues kernels ahead of the device; whichever is slower sets the pace.
  double seconds(const DeviceKind& kind) const;
  Pass& operator+=(const Pass& other);
  friend Pass operator*(double times, Pass pass);
};

struct BlockTime {
  Pass forward, recompute, backward;
  Pass weight;  // of backward: gradients of weights, which schedules that split the pass put off
};

// But for scale_time.
BlockTime block_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster);
// Of one block's linear layers in 8 bits: what ranks take to agree on scales, in forward (and its
// recomputation) and backward. Alone of all here it depends on
// how often the model is there.
BlockTime scale_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster);
BlockTime embedding_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster);
BlockTime head_time(const TransformerShape& model, const ForeignPlan& plan,
                    const Cluster& cluster);  // and loss

}  // namespace tessera
