// Refusal when no generation plan fits: the peak's contents, the smallest sufficient limit and device count.
#pragma once

#include "parallel/planner/generation_search.h"

namespace tessera {

// Stages of tp devices that fit on `devices`: a stage shares a node, or fills whole nodes.
int64_t count_stages(const Cluster& cluster, int64_t devices, int32_t tp);

// kOutOfMemory: "no plan fits 80.00 GiB a device; the smallest limit that works is ... (... bytes) with '...'. Its peak: ...".
Status refuse_generation(GenerationPrices& prices, const GenerationOptions& options);

}  // namespace tessera
