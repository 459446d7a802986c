// How much stack the calling thread has left: kernels hold tiles on it, and hosts of this library run threads
// with little.
#pragma once

#include <cstdint>

namespace tessera {

// Whether a kernel may run on this thread. True where the system does not say. Asks the system once for each
// thread.
bool has_stack_for_kernels();

}  // namespace tessera
