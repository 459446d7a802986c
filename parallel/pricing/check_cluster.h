// Check of a cluster that comes from a backend or from a caller, before anything is priced with it.
#pragma once

#include "graph/base/status.h"
#include "graph/cluster.h"

namespace tessera {

// kInvalidArgument, with the value found and the value wanted: no devices, a device of no kind listed, a rate,
// a time or a size that is negative, no number, or beyond any machine.
Status check_cluster(const Cluster& cluster);

}  // namespace tessera
