// Signed codes of block types that have no vector unpacker: one block at a time, in plain loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/dtype.h"

namespace tessera::cpu {

// Codes of one block, x = scale * code: nvfp4 (64 codes, a scale for 16), q1_0 (128 codes) and q2_0 (64 codes; a
// scale for 32).
void decode_signed_codes(DType type, const std::byte* block, int16_t* codes, float* scales);

}  // namespace tessera::cpu
