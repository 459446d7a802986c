// Checks a cluster from a backend or caller before it is priced.
#pragma once

#include "graph/base/status.h"
#include "graph/cluster.h"

namespace tessera {

// kInvalidArgument, with the value found and wanted: no devices, an unlisted
// kind, or a rate, time or size that is negative, NaN or beyond any machine.
Status check_cluster(const Cluster& cluster);

}  // namespace tessera
