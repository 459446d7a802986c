// A cluster as JSON, to describe absent hardware or to keep measurements. Exact: what is read equals what was
// written.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera {

std::string cluster_to_json(const Cluster& cluster);

// Refuses unknown keys, rates that are not positive numbers, and devices of unlisted kinds, with the key and
// the value found.
Result<Cluster> cluster_from_json(std::string_view text);

}  // namespace tessera
