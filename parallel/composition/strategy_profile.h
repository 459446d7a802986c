// Profile of a strategy: a model with few blocks, lowered by the strategy without its pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/kernel_catalog.h"
#include "parallel/composition/step_profile.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// `few`: the step of a model with few blocks (graph/transform/fewer_blocks.h). `global_batch`: sequences of the step, which the strategy
// cuts into micro-batches. `symbols`: all except "B". `breakdown`: adds costs by cause. Fails if the strategy cannot be applied or lowered.
Result<StepProfile> profile_strategy(const Graph& few, const StrategySpec& spec, int64_t global_batch,
                                     const std::vector<std::pair<std::string, int64_t>>& symbols,
                                     const Cluster& cluster, const KernelCatalog& catalog,
                                     bool breakdown = false, const SoftwareTraits& traits = {});

}  // namespace tessera
