// StagedPlan: the plan of stages whose blocks are told one by one, and its places lowered: what was composed, made real.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"
#include "parallel/composition/composed_memory.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// `step`: the whole model's, all symbols bound but "B". Blocks of variant 1 compute their activations again. Of `stages` the numbers of
// blocks and variants count, in order.
Result<Plan> staged_plan(const Graph& step, const StrategySpec& spec, const ComposedStages& stages,
                         int64_t global_batch);

// The arena of the first rank of each of the places (devices of the pipeline), in bytes. `step` is the graph that the plan's symbols bind.
Result<std::vector<int64_t>> lowered_arenas(const Graph& step, const Plan& plan, const KernelCatalog& catalog,
                                            std::span<const int32_t> places);

}  // namespace tessera
