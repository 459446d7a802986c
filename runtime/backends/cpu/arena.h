// Arena memory, zero when new: an anonymous mapping between two inaccessible pages, or the program's own.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"

namespace tessera::cpu {

// The start is 64-byte aligned. With `at_end` the last byte is at most 63 bytes before the inaccessible page,
// else the start is page-aligned. Where the program brings memory (tsr_host_api), it is that, without such pages.
Result<void*> arena_alloc(const tsr_host_api& host, int64_t bytes, bool at_end);
void arena_free(const tsr_host_api& host, void* memory, int64_t bytes);

}  // namespace tessera::cpu
