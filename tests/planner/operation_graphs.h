// Random small graphs of real operations, and a cluster for them.
#pragma once

#include <random>

#include "graph/cluster.h"
#include "graph/graph.h"

namespace tessera::testing {

// `operations` of products with weights, sums, products element by element and activations, with branches;
// extents that split evenly, and some that do not when `uneven`.
Graph random_operations(std::mt19937& random, int operations, bool uneven);

// Devices that share nothing, with a link on which communication is worth thinking about.
Cluster small_cluster(int32_t devices, double bytes_per_s, double latency_s);

}  // namespace tessera::testing
