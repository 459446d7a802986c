// Memory of a device and pinned memory of the host, with red zones around what is guarded.
#pragma once

#include <cstdint>

#include "graph/base/result.h"

namespace tessera::cuda {

// The device is current. A GPU has no inaccessible pages to put an allocation against: a guarded one lies
// between two zones of a known pattern, which `memory_free` compares.
Result<void*> memory_alloc(int32_t tier, int64_t bytes, bool guarded);
// An error tells of a red zone that something wrote to; the memory is free in any case.
Status memory_free(int32_t tier, void* memory, int64_t bytes);

}  // namespace tessera::cuda
