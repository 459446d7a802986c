// Clusters of one kind of device: what searches and prices are for. Others are refused by name, rather than
// priced as if all their devices were the first kind.
#pragma once

#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera {

// The same cluster with the kind of its devices as its only one; kUnsupported when two devices differ in
// anything but the name of their kind. A cluster may list kinds that none of its devices is of.
Result<Cluster> of_one_kind(const Cluster& cluster);

}  // namespace tessera
