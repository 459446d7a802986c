// Memory of a device and pinned memory of the host, with red zones around guarded allocations.
#pragma once

#include <cstdint>

#include "graph/base/result.h"

namespace tessera::cuda {

// Allocates on the current device. A GPU has no inaccessible pages: a guarded allocation is between two zones
// of a known pattern, which `memory_free` compares.
Result<void*> memory_alloc(int32_t tier, int64_t bytes, bool guarded);
// Frees memory; an error reports a red zone that was written to.
Status memory_free(int32_t tier, void* memory, int64_t bytes);

}  // namespace tessera::cuda
