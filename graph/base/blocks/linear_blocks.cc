// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: 32 elements on evenly spaced levels.
#include "graph/base/blocks/affine_search.h"
#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/scale_search.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

// Stores codes of four or five bits in the block's layout.
template <class Block>
void store_codes(Block& block, const float* levels, float offset) {
  uint32_t high = 0;
  for (int j = 0; j < 16; ++j) {
    const auto low_half = static_cast<unsigned>(static_cast<int>(levels[j] + offset));
    const auto high_half = static_cast<unsigned>(static_cast<int>(levels[j + 16] + offset));
    block.codes[j] = static_cast<uint8_t>((low_half & 15) | (high_half & 15) << 4);
    high |= (low_half >> 4) << j | (high_half >> 4) << (j + 16);
  }
  if constexpr (requires { block.high; }) std::memcpy(block.high, &high, sizeof high);
}

// Levels -half to half - 1 of one scale.
template <class Block>
void encode_symmetric(const float* x, const float* weights, float half, ScaleRange range, std::byte* out) {
  const EvenLevels levels{-half, half - 1};
  Block block;
  block.d = f16_scale(search_scale<32>(x, weights, levels, range).scale);
  float chosen[32];
  round_scaled<32>(x, weights, levels, f32_from_f16(block.d), chosen);
  store_codes(block, chosen, half);
  std::memcpy(out, &block, sizeof block);
}

// Levels 0 to high of a scale, above a minimum.
template <class Block>
void encode_affine(const float* x, const float* weights, float high, ScaleRange range, std::byte* out) {
  const AffineFit fit = search_affine<32>(x, weights, high, false, range);
  Block block;
  block.d = f16_scale(fit.scale);
  block.m = f16_scale(-fit.min);
  float chosen[32];
  round_affine<32>(x, weights, high, f32_from_f16(block.d), -f32_from_f16(block.m), chosen);
  store_codes(block, chosen, 0);
  std::memcpy(out, &block, sizeof block);
}

}  // namespace

void encode_q4_0(const float* x, const float* weights, std::byte* out) {
  encode_symmetric<BlockQ4_0>(x, weights, 8, {6, 9, 25}, out);
}
void encode_q5_0(const float* x, const float* weights, std::byte* out) {
  encode_symmetric<BlockQ5_0>(x, weights, 16, {14, 17, 21}, out);
}
void encode_q4_1(const float* x, const float* weights, std::byte* out) {
  encode_affine<BlockQ4_1>(x, weights, 15, {13, 17, 21}, out);
}
void encode_q5_1(const float* x, const float* weights, std::byte* out) {
  encode_affine<BlockQ5_1>(x, weights, 31, {29.5f, 32.5f, 16}, out);
}

// With 255 levels the scale of the largest magnitude is as good as any.
void encode_q8_0(const float* x, const float*, std::byte* out) {
  BlockQ8_0 block;
  block.d = f16_scale(largest_magnitude<32>(x) / 127.0f);
  const float inverse_scale = inverse_or_zero(f32_from_f16(block.d));
  for (int j = 0; j < 32; j += kLanes) {
    const FloatLanes level = round_lanes(clamp_lanes(load_lanes(x + j) * inverse_scale, -127.0f, 127.0f));
    for (int lane = 0; lane < kLanes; ++lane) block.codes[j + lane] = static_cast<int8_t>(level[lane]);
  }
  std::memcpy(out, &block, sizeof block);
}

}  // namespace tessera
