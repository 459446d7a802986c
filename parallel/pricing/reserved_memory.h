// Memory of a device that contexts, communicators and workspaces hold, so that no plan has it.
#pragma once

#include <cstdint>

#include "graph/cluster.h"

namespace tessera {

// What the kind says, else 3/16 of its memory and at most 3 GiB: 3 GiB is what large devices were measured to
// hold, of 16 GiB the smallest of them; smaller devices have fewer multiprocessors, and buffers for fewer peers.
int64_t reserved_bytes(const DeviceKind& kind);

}  // namespace tessera
