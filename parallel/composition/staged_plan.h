// StagedPlan: converts composed stages, given block by block, to a plan, and lowers its places.
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

// `step`: of the whole model, with all symbols bound except "B". Blocks of variant
// 1 are recomputed. Only block counts and variants of `stages` matter, in order.
Result<Plan> staged_plan(const Graph& step, const StrategySpec& spec, const ComposedStages& stages,
                         int64_t global_batch);

// Arena bytes of the first rank of each place (device of the pipeline). `step`: the graph bound by the plan's symbols.
Result<std::vector<int64_t>> lowered_arenas(const Graph& step, const Plan& plan, const KernelCatalog& catalog,
                                            std::span<const int32_t> places);

}  // namespace tessera
