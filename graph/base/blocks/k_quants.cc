// Q2_K to Q6_K: 256 elements in groups whose integer scales (Q2_K, Q4_K, Q5_K: and minima) share f16 factors.
#include "graph/base/blocks/affine_groups.h"
#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/scaled_groups.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

unsigned code_of(float level) { return static_cast<unsigned>(static_cast<int>(level)); }

// Two bits an element: 128 elements in 32 bytes.
void store_pairs(const unsigned (&codes)[256], uint8_t (&out)[64]) {
  for (int i = 0; i < 256; ++i)
    out[32 * (i / 128) + i % 32] |= static_cast<uint8_t>((codes[i] & 3) << 2 * (i / 32 % 4));
}

// Four bits an element: 64 elements in 32 bytes.
void store_nibbles(const float* levels, uint8_t (&out)[128]) {
  for (int i = 0; i < 256; ++i)
    out[32 * (i / 64) + i % 32] |= static_cast<uint8_t>((code_of(levels[i]) & 15) << 4 * (i / 32 % 2));
}

// Eight scales and minima of six bits; q4_k_scale and q4_k_min read them.
void store_scales(const int (&scales)[8], const int (&mins)[8], uint8_t (&out)[12]) {
  for (int g = 0; g < 4; ++g) {
    out[g] = static_cast<uint8_t>(scales[g] | (scales[g + 4] >> 4) << 6);
    out[g + 4] = static_cast<uint8_t>(mins[g] | (mins[g + 4] >> 4) << 6);
    out[g + 8] = static_cast<uint8_t>((scales[g + 4] & 15) | (mins[g + 4] & 15) << 4);
  }
}

}  // namespace

void encode_q2_k(const float* x, const float* weights, std::byte* out) {
  const auto groups = encode_affine_groups<16, 16>(x, weights, 3, {2, 5, 31}, 15);
  BlockQ2_K block{};
  block.d = groups.d;
  block.dmin = groups.dmin;
  for (int g = 0; g < 16; ++g) block.scales[g] = static_cast<uint8_t>(groups.scales[g] | groups.mins[g] << 4);
  unsigned codes[256];
  for (int i = 0; i < 256; ++i) codes[i] = code_of(groups.levels[i]);
  store_pairs(codes, block.codes);
  std::memcpy(out, &block, sizeof block);
}

void encode_q3_k(const float* x, const float* weights, std::byte* out) {
  const auto groups = encode_scaled_groups<16, 16>(x, weights, EvenLevels{-4, 3}, {2.2f, 5, 29}, -32, 31);
  BlockQ3_K block{};
  block.d = groups.d;
  for (int g = 0; g < 16; ++g) {
    const auto scale = static_cast<unsigned>(groups.scales[g] + 32);
    block.scales[g % 8] |= static_cast<uint8_t>((scale & 15) << 4 * (g / 8));
    block.scales[8 + g % 4] |= static_cast<uint8_t>((scale >> 4) << 2 * (g / 4));
  }
  unsigned codes[256];
  for (int i = 0; i < 256; ++i) {
    codes[i] = code_of(groups.levels[i] + 4);
    block.high[i % 32] |= static_cast<uint8_t>((codes[i] >> 2) << i / 32);
  }
  store_pairs(codes, block.codes);
  std::memcpy(out, &block, sizeof block);
}

void encode_q4_k(const float* x, const float* weights, std::byte* out) {
  const auto groups = encode_affine_groups<8, 32>(x, weights, 15, {13, 17, 21}, 63);
  BlockQ4_K block{};
  block.d = groups.d;
  block.dmin = groups.dmin;
  store_scales(groups.scales, groups.mins, block.scales);
  store_nibbles(groups.levels, block.codes);
  std::memcpy(out, &block, sizeof block);
}

void encode_q5_k(const float* x, const float* weights, std::byte* out) {
  const auto groups = encode_affine_groups<8, 32>(x, weights, 31, {29.5f, 32.5f, 16}, 63);
  BlockQ5_K block{};
  block.d = groups.d;
  block.dmin = groups.dmin;
  store_scales(groups.scales, groups.mins, block.scales);
  store_nibbles(groups.levels, block.codes);
  for (int i = 0; i < 256; ++i)
    block.high[i % 32] |= static_cast<uint8_t>((code_of(groups.levels[i]) >> 4) << i / 32);
  std::memcpy(out, &block, sizeof block);
}

void encode_q6_k(const float* x, const float* weights, std::byte* out) {
  const auto groups = encode_scaled_groups<16, 16>(x, weights, EvenLevels{-32, 31}, {30, 33, 16}, -128, 127);
  BlockQ6_K block{};
  block.d = groups.d;
  for (int g = 0; g < 16; ++g) block.scales[g] = static_cast<int8_t>(groups.scales[g]);
  for (int i = 0; i < 256; ++i) {
    const unsigned code = code_of(groups.levels[i] + 32);
    const int half = i / 128, quarter = i / 32 % 4;
    block.low[64 * half + 32 * (quarter % 2) + i % 32] |=
        static_cast<uint8_t>((code & 15) << 4 * (quarter / 2));
    block.high[32 * half + i % 32] |= static_cast<uint8_t>((code >> 4) << 2 * quarter);
  }
  std::memcpy(out, &block, sizeof block);
}

}  // namespace tessera
