// TQ1_0, TQ2_0, Q1_0, Q2_0: one scale and two to four levels.
#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

constexpr unsigned kPowersOf3[] = {1, 3, 9, 27, 81};

// Trit `n` of each of `Bytes` bytes.
template <int Bytes>
void decode_trits(const uint8_t* bytes, int n, float d, float* x) {
  for (int l = 0; l < Bytes; ++l) {
    const unsigned rest = bytes[l] * kPowersOf3[n] & 255;
    x[l] = static_cast<float>(static_cast<int>(rest * 3 >> 8) - 1) * d;
  }
}

}  // namespace

void decode_tq1_0(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockTq1_0, 256>(blocks, out, block_count, [](const BlockTq1_0& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int n = 0; n < 5; ++n) decode_trits<32>(block.codes, n, d, x + 32 * n);
    for (int n = 0; n < 5; ++n) decode_trits<16>(block.codes + 32, n, d, x + 160 + 16 * n);
    for (int n = 0; n < 4; ++n) decode_trits<4>(block.last, n, d, x + 240 + 4 * n);
  });
}

void decode_tq2_0(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockTq2_0, 256>(blocks, out, block_count, [](const BlockTq2_0& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int s = 0; s < 8; ++s) {
      const uint8_t* codes = block.codes + 32 * (s / 4);
      const int shift = 2 * (s % 4);
      for (int l = 0; l < 32; ++l) x[32 * s + l] = static_cast<float>((codes[l] >> shift & 3) - 1) * d;
    }
  });
}

void decode_q1_0(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ1_0, 128>(blocks, out, block_count, [](const BlockQ1_0& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 8; ++j) x[8 * i + j] = static_cast<float>(2 * (block.codes[i] >> j & 1) - 1) * d;
  });
}

void decode_q2_0(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ2_0, 64>(blocks, out, block_count, [](const BlockQ2_0& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 4; ++j) x[4 * i + j] = static_cast<float>((block.codes[i] >> 2 * j & 3) - 1) * d;
  });
}

}  // namespace tessera
