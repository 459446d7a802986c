// Kinds of devices against each other: whether they differ, and the one that is as slow as both.
#pragma once

#include "graph/cluster.h"

namespace tessera {

// In everything but their names.
bool alike(DeviceKind a, const DeviceKind& b);

// Every rate, memory and fixed time of the worse of the two, in waves of `a`'s multiprocessors; memory that
// is not known (0 bytes) is no limit.
DeviceKind slower(const DeviceKind& a, const DeviceKind& b);

}  // namespace tessera
