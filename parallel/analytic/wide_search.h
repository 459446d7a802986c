// The search of the whole space: families of meshes, then their configurations, always the one with the least
// bound next; a few at a time side by side, so that the result does not depend on how many threads there are.
#pragma once

#include "parallel/analytic/step_search.h"

namespace tessera {

// `seed`: what the narrower search found, if anything. `limit`: bytes a device.
Result<StepSearchResult> search_wide(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options, const StepSearchResult* seed,
                                     int64_t limit);

}  // namespace tessera
