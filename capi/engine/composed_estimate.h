// Memory of an estimated plan as its lowered program has it: composed of the profile of a few blocks (parallel/composition), or lowered
// whole.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/models/model_family.h"
#include "parallel/analytic/step_solver.h"
#include "parallel/composition/composed_memory.h"

namespace tessera {

// By device of the pipeline; without what the device itself reserves. kUnsupported, with the reason, for what this library does not run:
// traits of other software (unfused attention, gradients in 16 bits), operators sharded one by one, parts of what waits on the host.
Result<std::vector<DeviceBytes>> compose_estimate(const ModelConfig& config, const TransformerShape& model,
                                                  const FoundStep& found, const Cluster& cluster,
                                                  int64_t global_batch);

// A device of the pipeline, and the arena that its first rank is lowered to.
struct LoweredDevice {
  int32_t device = 0;
  int64_t bytes = 0;
};
// The same plan lowered, of the whole model: the first device, the last, the fullest as composed, and the slowest; with as many
// micro-batches as fill the pipeline. Fails as compose_estimate does, or as lowering does.
Result<std::vector<LoweredDevice>> lower_estimate(const ModelConfig& config, const TransformerShape& model,
                                                  const FoundStep& found, const Cluster& cluster,
                                                  int64_t global_batch,
                                                  const std::vector<DeviceBytes>& composed);

// Blocks times micro-batches that lower_estimate would lower, at most.
int64_t lowered_passes(const FoundStep& found, int64_t global_batch);

// ForeignPlan::held under which the estimate of the plan's schedule holds no less than it was composed to; never less than it was.
// `bytes`: by device, reserves included.
double held_share_of(const TransformerShape& model, const FoundStep& found, const Cluster& cluster,
                     int64_t global_batch, const std::vector<int64_t>& bytes);

}  // namespace tessera
