// Prefetch: moves transfers ahead of their readers, so that they run while kernels before the reader compute.
#pragma once

#include "graph/program.h"

namespace tessera {

// Collectives and copies are issued up to `kernels` kernels before the place where they were written, as far
// as what they read is there and what they write is free. Collectives, sends and receives keep their order
// among themselves, so ranks that agreed on it before agree on it after. Runs before slots are placed: a
// buffer that is filled earlier lives longer.
void prefetch(EntryPoint& entry, int32_t kernels);

}  // namespace tessera
