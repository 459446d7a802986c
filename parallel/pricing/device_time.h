// Times of single operations on a device kind, from rates alone: what kernels cost on hardware that is absent.
#pragma once

#include <cstdint>

#include "graph/cluster.h"

namespace tessera {

// count products [m, k] x [k, n]: waves of tiles on all multiprocessors (the best of four tile shapes), never
// faster than its operands and result move.
double product_seconds(const DeviceKind& kind, DType dtype, double m, double n, double k);
// Many small products, as the scores of unfused attention.
double batched_product_seconds(const DeviceKind& kind, DType dtype, double count, double m, double n,
                               double k);
// One kernel that only moves bytes.
double streaming_seconds(const DeviceKind& kind, double bytes);

}  // namespace tessera
