// Arena memory: an anonymous mapping between two inaccessible pages, zero when new.
#pragma once

#include <cstdint>

#include "graph/base/result.h"

namespace tessera::cpu {

// The start is 64-byte aligned. With `at_end` the last byte is at most 63 bytes before the inaccessible page,
// else the start is page-aligned.
Result<void*> arena_alloc(int64_t bytes, bool at_end);
void arena_free(void* memory, int64_t bytes);

}  // namespace tessera::cpu
