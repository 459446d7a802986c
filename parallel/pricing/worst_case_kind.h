// Worst-case kind of devices in lockstep: the slower one in every respect.
#pragma once

#include "graph/cluster.h"

namespace tessera {

// Equality except for names.
bool is_same_kind(DeviceKind a, const DeviceKind& b);

// The worse of every rate, memory and fixed time; the multiprocessor count,
// which sizes waves of tiles, is `a`'s. Unknown memory (0 bytes) is no limit.
DeviceKind worst_case_kind(const DeviceKind& a, const DeviceKind& b);

}  // namespace tessera
