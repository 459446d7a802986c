// Times of single operations on a device kind, and of collectives on a cluster, from rates alone: what a plan
// costs before anything is lowered, and on hardware that is absent.
#pragma once

#include <cstdint>

#include "graph/base/status.h"
#include "graph/cluster.h"

namespace tessera {

// Prices and searches here are of devices all alike: kUnsupported, with the kinds, for others.
Status check_one_kind(const Cluster& cluster);

double matrix_rate(const DeviceKind& kind, DType dtype);

// As groups of `members` in one node see it; between measured sizes as the logarithm of the size goes.
Link link_inside_node(const Cluster& cluster, int32_t members);

// count products [m, k] x [k, n]: waves of tiles on all multiprocessors (the best of four tile shapes), never
// faster than its operands and result move.
double product_seconds(const DeviceKind& kind, DType dtype, double m, double n, double k);
// Many small products, as the scores of unfused attention.
double batched_product_seconds(const DeviceKind& kind, DType dtype, double count, double m, double n,
                               double k);
// One kernel that only moves bytes.
double streaming_seconds(const DeviceKind& kind, double bytes);

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

// `bytes` is the whole message: what every member holds after an all-reduce or all-gather, or before a
// reduce-scatter or all-to-all. All groups of a node are taken to communicate at the same time.
double all_reduce_seconds(const Cluster& cluster, RankGroup group, double bytes);
double gather_seconds(const Cluster& cluster, RankGroup group, double bytes);  // and reduce-scatter
double all_to_all_seconds(const Cluster& cluster, RankGroup group, double bytes);
// From one device to the one `stride` further; `together` devices of a node do so at once.
double send_seconds(const Cluster& cluster, int32_t stride, double bytes);

}  // namespace tessera
