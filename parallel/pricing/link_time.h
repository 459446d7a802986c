// Times of collectives and messages from a cluster's links alone: by how many members of a group share a node,
// and how many nodes the group spans.
#pragma once

#include <cstdint>
#include <span>

#include "graph/cluster.h"

namespace tessera {

// The link that a group of `members` in one node has; between measured sizes as the logarithm of the size goes.
Link link_inside_node(const Cluster& cluster, int32_t members);

// A group of devices: `members` in all, `per_node` of them in each node that it touches.
struct RankGroup {
  int32_t members = 1;
  int32_t per_node = 1;
  // A library that lays one ring through a group enters a node by one network card and leaves it by another,
  // half of what the two carry; with one member in a node the two are the same, and through whole nodes it
  // lays a ring for every card.
  bool one_ring = false;
};

// Every `stride`-th device, `members` of them, counted from the first: tensor-parallel groups have stride 1.
RankGroup group_of(const Cluster& cluster, int32_t members, int32_t stride);
// These devices. Nodes with unlike numbers of them count as ones with the average, rounded down.
RankGroup group_of(const Cluster& cluster, std::span<const int32_t> devices);
bool in_one_node(const Cluster& cluster, std::span<const int32_t> devices);

// `bytes` is the whole message: what every member holds after an all-reduce or all-gather, or before a
// reduce-scatter or all-to-all. All groups of a node are taken to communicate at the same time.
double all_reduce_seconds(const Cluster& cluster, RankGroup group, double bytes);
double gather_seconds(const Cluster& cluster, RankGroup group, double bytes);  // and reduce-scatter
double all_to_all_seconds(const Cluster& cluster, RankGroup group, double bytes);
// From one device to the one `stride` further; all devices of a node send at once.
double send_seconds(const Cluster& cluster, int32_t stride, double bytes);

}  // namespace tessera
