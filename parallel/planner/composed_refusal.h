// What is said where no composed plan fits: the plan that was found to take least memory, and how many devices would do.
#pragma once

#include "graph/base/result.h"
#include "parallel/planner/composed_search.h"

namespace tessera {

// kOutOfMemory with both, among plans that keep the options' words, spread what ZeRO 3 spreads, compute everything again, and where the
// words leave it open keep on the host what may wait there. kInvalidArgument where there is no plan with those words.
Status nothing_fits(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                    const ComposedSearchOptions& options);

}  // namespace tessera
