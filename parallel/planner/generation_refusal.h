// When no plan for generating text fits: what fills the device, the smallest limit and the fewest devices that would do.
#pragma once

#include "parallel/planner/generation_search.h"

namespace tessera {

// Stages of tp devices that a cluster of so many has room for: those of one stage share a node, or fill nodes of their own.
int64_t count_stages(const Cluster& cluster, int64_t devices, int32_t tp);

// kOutOfMemory: "no plan fits 80.00 GiB a device; the smallest limit that works is ... (... bytes) with '...'. Its peak: ...".
Status refuse_generation(GenerationPrices& prices, const GenerationOptions& options);

}  // namespace tessera
