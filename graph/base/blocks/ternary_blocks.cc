// TQ1_0, TQ2_0, Q1_0, Q2_0: one scale and two to four levels.
#include <algorithm>
#include <bit>

#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/scale_search.h"
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

// The scale of least squares, exactly: what is not zero are the elements of the greatest magnitudes, as many
// as gain most. Codes are 0, 1, 2.
uint16_t encode_ternary(const float* x, const float* weights, unsigned (&codes)[256]) {
  // Magnitudes are ordered as their bits are.
  uint64_t order[256];
  for (int i = 0; i < 256; ++i)
    order[i] = uint64_t{std::bit_cast<uint32_t>(std::fabs(x[i]))} << 32 | static_cast<uint32_t>(i);
  std::sort(order, order + 256);
  double products = 0, sum = 0, most = 0, scale = 0;
  for (int k = 255; k >= 0; --k) {
    const auto i = static_cast<uint32_t>(order[k]);
    const double weight = weights[i];
    products += weight * std::fabs(x[i]);
    sum += weight;
    if (products * products > most * sum) {
      most = products * products / sum;
      scale = products / sum;
    }
  }
  const uint16_t d = f16_scale(static_cast<float>(scale));
  float chosen[256];
  round_scaled<256>(x, weights, EvenLevels{-1, 1}, f32_from_f16(d), chosen);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<unsigned>(static_cast<int>(chosen[i]) + 1);
  return d;
}

// `Count` trits, each `stride` codes after the one before, as the byte that decode_trits reads.
uint8_t pack_trits(const unsigned* codes, int stride, int count) {
  unsigned number = 0;
  for (int n = 0; n < 5; ++n) number = 3 * number + (n < count ? codes[n * stride] : 0);
  return static_cast<uint8_t>((number * 256 + 242) / 243);
}

}  // namespace

void encode_tq1_0(const float* x, const float* weights, std::byte* out) {
  unsigned codes[256];
  BlockTq1_0 block;
  block.d = encode_ternary(x, weights, codes);
  for (int l = 0; l < 32; ++l) block.codes[l] = pack_trits(codes + l, 32, 5);
  for (int l = 0; l < 16; ++l) block.codes[32 + l] = pack_trits(codes + 160 + l, 16, 5);
  for (int l = 0; l < 4; ++l) block.last[l] = pack_trits(codes + 240 + l, 4, 4);
  std::memcpy(out, &block, sizeof block);
}

void encode_tq2_0(const float* x, const float* weights, std::byte* out) {
  unsigned codes[256];
  BlockTq2_0 block{};
  block.d = encode_ternary(x, weights, codes);
  for (int i = 0; i < 256; ++i)
    block.codes[32 * (i / 128) + i % 32] |= static_cast<uint8_t>(codes[i] << 2 * (i / 32 % 4));
  std::memcpy(out, &block, sizeof block);
}

// The mean magnitude is the scale of least squares.
void encode_q1_0(const float* x, const float* weights, std::byte* out) {
  double products = 0, sum = 0;
  BlockQ1_0 block{};
  for (int i = 0; i < 128; ++i) {
    products += static_cast<double>(weights[i]) * std::fabs(x[i]);
    sum += weights[i];
    block.codes[i / 8] |= static_cast<uint8_t>((x[i] >= 0.0f ? 1u : 0u) << i % 8);
  }
  block.d = f16_scale(static_cast<float>(products / sum));
  std::memcpy(out, &block, sizeof block);
}

void encode_q2_0(const float* x, const float* weights, std::byte* out) {
  const EvenLevels levels{-1, 2};
  BlockQ2_0 block{};
  block.d = f16_scale(search_scale<64>(x, weights, levels, {0.7f, 3.5f, 29}).scale);
  float chosen[64];
  round_scaled<64>(x, weights, levels, f32_from_f16(block.d), chosen);
  for (int i = 0; i < 64; ++i)
    block.codes[i / 4] |=
        static_cast<uint8_t>(static_cast<unsigned>(static_cast<int>(chosen[i]) + 1) << 2 * (i % 4));
  std::memcpy(out, &block, sizeof block);
}

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
