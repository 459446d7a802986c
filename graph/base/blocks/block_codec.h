// Block codecs: element types of weights to f32 and back, one row of one table (block_codec.cc) for each
// type. The layouts are in block_layout.h. Pure functions of their arguments, for any thread; results are the
// same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/base/dtype.h"
#include "graph/base/status.h"

namespace tessera {

// Returns whether values of the type stand for themselves: floats of 16 bits and more, and all block types.
bool can_decode(DType type);

// Writes `count` elements, whole blocks, with the bits that GGML's dequantize_row_* gives (nf4: bitsandbytes'). Reads
// dtype_bytes(type, count) bytes, which may hold anything and be at any address. f64 is rounded to f32.
void decode_blocks(DType type, const std::byte* blocks, float* out, int64_t count);

// Returns whether encode_blocks takes the type: all that decode,
// except iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs and iq3_s.
bool can_encode(DType type);

// The greatest magnitude that encode_blocks takes for the type.
float largest_encodable(DType type);

// Writes `count` elements, whole blocks, as dtype_bytes(type, count) bytes,
// and keeps the sum of squared errors small. `importance` weighs the squares:
// one number >= 0 for each element of a row, so `count` is whole rows and a
// row is whole blocks; empty: equal weights. Weights have no effect on q8_0,
// nf4 and floats. A block whose weights are all zero counts as unweighted.
// An error names the first value that is not finite or above
// largest_encodable, or the first negative or non-finite weight.
Status encode_blocks(DType type, const float* values, int64_t count, std::byte* out,
                     std::span<const float> importance = {});

}  // namespace tessera
