// Times of single operations on a device kind, from rates alone: what a plan costs before anything is lowered,
// and on hardware that is absent.
#pragma once

#include <cstdint>

#include "graph/base/status.h"
#include "graph/cluster.h"
#include "parallel/pricing/link_time.h"

namespace tessera {

// Prices and searches here are of devices all alike: kUnsupported, with the kinds, for others.
Status check_one_kind(const Cluster& cluster);

// count products [m, k] x [k, n]: waves of tiles on all multiprocessors (the best of four tile shapes), never
// faster than its operands and result move.
double product_seconds(const DeviceKind& kind, DType dtype, double m, double n, double k);
// Many small products, as the scores of unfused attention.
double batched_product_seconds(const DeviceKind& kind, DType dtype, double count, double m, double n,
                               double k);
// One kernel that only moves bytes.
double streaming_seconds(const DeviceKind& kind, double bytes);

}  // namespace tessera
