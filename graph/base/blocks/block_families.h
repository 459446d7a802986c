// The functions behind the table of block_codec.cc: decoders of block_decode.h, encoders by file. Decoders
// take whole blocks at any address. An encoder takes one block of finite values, at most largest_encodable in
// magnitude, and weights from 1e-9 to 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "graph/base/blocks/block_decode.h"

namespace tessera {

using DecodeBlocks = void(const std::byte* blocks, float* out, int64_t block_count);
using EncodeBlock = void(const float* x, const float* weights, std::byte* out);

template <class Block>
void decode_each(const std::byte* blocks, float* out, int64_t block_count) {
  for (int64_t i = 0; i < block_count; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * static_cast<int64_t>(sizeof block), sizeof block);
    decode_block(block, out + i * Block::kElements);
  }
}

// linear_blocks.cc: one scale, or a scale and a minimum, for 32 elements
EncodeBlock encode_q4_0, encode_q4_1, encode_q5_0, encode_q5_1, encode_q8_0;
// k_quants.cc
EncodeBlock encode_q2_k, encode_q3_k, encode_q4_k, encode_q5_k, encode_q6_k;
// codebook_blocks.cc
EncodeBlock encode_iq4_nl, encode_iq4_xs, encode_mxfp4, encode_nvfp4, encode_nf4;
// ternary_blocks.cc: levels -1, 0, 1, and the similar sets -1, 1 and -1, 0, 1, 2
EncodeBlock encode_tq1_0, encode_tq2_0, encode_q1_0, encode_q2_0;

}  // namespace tessera
