// A cluster that no machine has, for tests: devices all alike, between any two of which lies the same link. What else a
// test is about (shared cores, nodes, a host's link, a memory limit) it sets itself.
#pragma once

#include <cstddef>

#include "graph/cluster.h"

namespace tessera {

inline Cluster fake_cluster(int64_t devices, Link link, double flops_per_s) {
  Cluster cluster;
  cluster.kinds.push_back({"fake", int64_t{1} << 40, flops_per_s, flops_per_s / 10, 1e-6});
  cluster.devices.assign(static_cast<size_t>(devices), 0);
  cluster.link = link;
  return cluster;
}

}  // namespace tessera
