// Times of single operations on absent hardware, from rates alone.
#pragma once

#include <cstdint>

#include "graph/cluster.h"

namespace tessera {

// `count` matmuls [m, k] x [k, n]: waves of tiles on all multiprocessors (the best of four
// shapes), at least the time of their bytes. More than one: such as scores of unfused attention.
double batched_matmul_seconds(const DeviceKind& kind, DType dtype, double count, double m, double n,
                              double k);
// A kernel that only moves bytes.
double streaming_seconds(const DeviceKind& kind, double bytes);

}  // namespace tessera
