// Device memory of contexts, communicators and workspaces, unavailable to plans.
#pragma once

#include <cstdint>

#include "graph/cluster.h"

namespace tessera {

// The kind's value, else 3/16 of its memory, at most 3 GiB: measured on large devices,
// and on the smallest with 16 GiB; smaller devices have fewer multiprocessors and peers.
int64_t reserved_bytes(const DeviceKind& kind);

}  // namespace tessera
