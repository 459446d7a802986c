// Block codecs: element types of weights to f32 and back, one row of one table (block_codec.cc) for each
// type. The layouts are in block_layout.h. Pure functions of their arguments, for any thread; results are the
// same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/dtype.h"

namespace tessera {

// Whether values of the type stand for themselves: floats of 16 bits and more, and all block types.
bool can_decode(DType type);

// Writes `count` elements, whole blocks, with the bits that GGML's dequantize_row_* gives. Reads
// dtype_bytes(type, count) bytes, which may hold anything and be at any address. f64 is rounded to f32.
void decode_blocks(DType type, const std::byte* blocks, float* out, int64_t count);

}  // namespace tessera
