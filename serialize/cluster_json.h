// A cluster as JSON, to describe absent hardware or to
// store measurements. Values survive a round trip exactly.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera {

std::string cluster_to_json(const Cluster& cluster);

// Refuses unknown keys, rates that are not positive,
// and devices of unlisted kinds, naming key and value.
Result<Cluster> cluster_from_json(std::string_view text);

}  // namespace tessera
