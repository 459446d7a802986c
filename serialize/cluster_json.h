// A cluster as JSON, to describe hardware that is absent or to keep what was measured. Exact: what is read
// equals what was written.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera {

std::string cluster_to_json(const Cluster& cluster);

// Unknown keys, rates that are not positive numbers, and devices of kinds that are not listed are refused
// with the key and the value found.
Result<Cluster> cluster_from_json(std::string_view text);

}  // namespace tessera
