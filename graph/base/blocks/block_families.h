// The functions behind the table of block_codec.cc, by file. Decoders take whole blocks at any address. An
// encoder takes one block of finite values, at most largest_encodable in magnitude, and weights from 1e-9
// to 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera {

using DecodeBlocks = void(const std::byte* blocks, float* out, int64_t block_count);
using EncodeBlock = void(const float* x, const float* weights, std::byte* out);

// Calls decode(block, out) with a copy of each block.
template <class Block, int Elements, class Decode>
void decode_each(const std::byte* blocks, float* out, int64_t block_count, const Decode& decode) {
  for (int64_t i = 0; i < block_count; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * static_cast<int64_t>(sizeof block), sizeof block);
    decode(block, out + i * Elements);
  }
}

// linear_blocks.cc: one scale, or a scale and a minimum, for 32 elements
DecodeBlocks decode_q4_0, decode_q4_1, decode_q5_0, decode_q5_1, decode_q8_0;
EncodeBlock encode_q4_0, encode_q4_1, encode_q5_0, encode_q5_1, encode_q8_0;
// k_quants.cc
DecodeBlocks decode_q2_k, decode_q3_k, decode_q4_k, decode_q5_k, decode_q6_k;
EncodeBlock encode_q2_k, encode_q3_k, encode_q4_k, encode_q5_k, encode_q6_k;
// iq_quants.cc
DecodeBlocks decode_iq1_s, decode_iq1_m, decode_iq2_xxs, decode_iq2_xs, decode_iq2_s, decode_iq3_xxs,
    decode_iq3_s;
// codebook_blocks.cc
DecodeBlocks decode_iq4_nl, decode_iq4_xs, decode_mxfp4, decode_nvfp4;
EncodeBlock encode_iq4_nl, encode_iq4_xs, encode_mxfp4, encode_nvfp4;
// ternary_blocks.cc: levels -1, 0, 1, and the kin -1, 1 and -1, 0, 1, 2
DecodeBlocks decode_tq1_0, decode_tq2_0, decode_q1_0, decode_q2_0;
EncodeBlock encode_tq1_0, encode_tq2_0, encode_q1_0, encode_q2_0;

}  // namespace tessera
