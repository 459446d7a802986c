// Joint kind of devices that do the same work: as slow as the slower one in everything.
#pragma once

#include "graph/cluster.h"

namespace tessera {

// In everything but their names.
bool is_same_kind(DeviceKind a, const DeviceKind& b);

// Every rate, memory and fixed time of the worse of the two, in waves of `a`'s multiprocessors; memory that
// is not known (0 bytes) is no limit.
DeviceKind worst_case_kind(const DeviceKind& a, const DeviceKind& b);

}  // namespace tessera
