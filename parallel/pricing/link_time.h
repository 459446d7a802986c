// Times of collectives and messages from a cluster's links:
// by the members per node, and the nodes of a group.
#pragma once

#include <cstdint>
#include <span>

#include "graph/cluster.h"

namespace tessera {

// The link of a group of `members` within one node; interpolated logarithmically between measured sizes.
Link link_inside_node(const Cluster& cluster, int32_t members);

// RankGroup: `members` devices, `per_node` in each node.
struct RankGroup {
  int32_t members = 1;
  int32_t per_node = 1;
  // A single ring enters a node by one network card and leaves by
  // another, half of both cards' rate; with one member per node they
  // are the same, and through whole nodes there is a ring per card.
  bool one_ring = false;
};

// Every `stride`-th device, `members` of them, from the first: tensor-parallel groups have stride 1.
RankGroup group_of(const Cluster& cluster, int32_t members, int32_t stride);
// These devices. Unequal nodes count with their average, rounded down.
RankGroup group_of(const Cluster& cluster, std::span<const int32_t> devices);
bool in_one_node(const Cluster& cluster, std::span<const int32_t> devices);

// `bytes`: the whole message, as held after an all-reduce or all-gather, or before a
// reduce-scatter or all-to-all. All groups of a node are assumed to communicate at once.
double all_reduce_seconds(const Cluster& cluster, RankGroup group, double bytes);
double gather_seconds(const Cluster& cluster, RankGroup group, double bytes);  // also reduce-scatter
double all_to_all_seconds(const Cluster& cluster, RankGroup group, double bytes);
// From a device to the one `stride` later; all devices of a node send at once.
double send_seconds(const Cluster& cluster, int32_t stride, double bytes);

}  // namespace tessera
