// Prices of training steps on clusters that need not be present.
#pragma once

#include <string>
#include <string_view>

#include "capi/engine/options.h"
#include "graph/cluster.h"

namespace tessera {

// A preset ("dgx-a100-80gb:512") or a JSON file (a name ending in ".json").
Result<Cluster> open_cluster(const std::string& text);

// JSON, as tessera.h says of tsr_plan_estimate.
Result<std::string> estimate_step(std::string_view description, const Options& options);

}  // namespace tessera
