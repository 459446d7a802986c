// TQ1_0, TQ2_0, Q1_0, Q2_0: one scale and two to four levels.
#include <algorithm>
#include <bit>

#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/scale_search.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

// The scale of least squares, exactly: the nonzero elements are those of the
// greatest magnitudes, as many as reduce the error most. Codes are 0, 1, 2.
uint16_t encode_ternary(const float* x, const float* weights, unsigned (&codes)[256]) {
  // Magnitudes have the order of their bits.
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

// Packs `Count` trits, `stride` codes apart, into the byte that decode_trits reads.
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

}  // namespace tessera
