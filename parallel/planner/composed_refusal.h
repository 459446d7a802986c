// Refusal when no composed plan fits: the plan with least memory, and the number of devices that suffices.
#pragma once

#include "graph/base/result.h"
#include "parallel/planner/composed_search.h"

namespace tessera {

// kOutOfMemory with both, over plans of the given strategy with ZeRO 3, full recomputation
// and, unless pinned, offload. kInvalidArgument if no plan has that strategy.
Status nothing_fits(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                    const ComposedSearchOptions& options);

}  // namespace tessera
