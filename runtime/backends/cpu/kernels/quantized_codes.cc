// A copy of the block with a scale of one, or of what makes the values integers, is decoded: values are codes
// then, and exact.
#include "runtime/backends/cpu/kernels/quantized_codes.h"

#include <algorithm>
#include <cstring>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/half.h"
#include "graph/base/status.h"

namespace tessera::cpu {
namespace {

constexpr uint16_t kF16One = 0x3c00, kF16Four = 0x4400, kF16Eight = 0x4800;
constexpr int kMost = 256;  // elements of a block

template <class Block>
Block load_block(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

// group_scales: integer scales of 16 elements, or null.
template <class Block>
void decode_integers(DType type, const Block& block, const int* group_scales, int16_t* codes) {
  float values[kMost];
  const int count = info(type).block_elements;
  decode_blocks(type, reinterpret_cast<const std::byte*>(&block), values, count);
  for (int i = 0; i < count; ++i)
    codes[i] = static_cast<int16_t>(static_cast<int>(values[i]) *
                                    (group_scales == nullptr ? 1 : group_scales[i / 16]));
}

// Blocks with nothing but a scale d.
template <class Block>
void decode_plain(DType type, const std::byte* bytes, int16_t* codes, float* scales, int scale_count) {
  Block block = load_block<Block>(bytes);
  std::fill_n(scales, scale_count, f32_from_f16(block.d));
  block.d = kF16One;
  decode_integers(type, block, nullptr, codes);
}

// Odd integer scales 2 s + 1, s from `stored(group of 16)`, and unit, the f16 that makes values with s = 0
// integers, its inverse as `factor`.
template <class Block, class Stored>
void decode_grid(DType type, Block& block, uint16_t unit, float factor, const Stored& stored, int16_t* codes,
                 float* scales) {
  int group_scales[16];
  for (int g = 0; g < 16; ++g) group_scales[g] = 2 * static_cast<int>(stored(g)) + 1;
  scales[0] = f32_from_f16(block.d) * factor;
  block.d = unit;
  decode_integers(type, block, group_scales, codes);
}

unsigned nibble_of(const uint8_t* nibbles, int i) { return nibbles[i / 2] >> 4 * (i % 2) & 15u; }

template <class Block>
void decode_iq2(DType type, const std::byte* bytes, int16_t* codes, float* scales) {
  Block block = load_block<Block>(bytes);
  uint8_t nibbles[8];
  std::memcpy(nibbles, block.scales, sizeof nibbles);
  std::memset(block.scales, 0, sizeof block.scales);
  decode_grid(
      type, block, kF16Eight, 0.125f, [&](int g) { return nibble_of(nibbles, g); }, codes, scales);
}

void decode_iq2_xxs(const std::byte* bytes, int16_t* codes, float* scales) {
  auto block = load_block<BlockIq2Xxs>(bytes);
  unsigned top[8];
  for (int g = 0; g < 8; ++g) {
    top[g] = block.codes[8 * g + 7] >> 4u;
    block.codes[8 * g + 7] &= 15;
  }
  decode_grid(
      DType::kIQ2_XXS, block, kF16Eight, 0.125f, [&](int g) { return top[g / 2]; }, codes, scales);
}

void decode_iq3_xxs(const std::byte* bytes, int16_t* codes, float* scales) {
  auto block = load_block<BlockIq3Xxs>(bytes);
  unsigned top[8];
  for (int g = 0; g < 8; ++g) {
    top[g] = block.signs[4 * g + 3] >> 4u;
    block.signs[4 * g + 3] &= 15;
  }
  decode_grid(
      DType::kIQ3_XXS, block, kF16Four, 0.25f, [&](int g) { return top[g / 2]; }, codes, scales);
}

void decode_iq3_s(const std::byte* bytes, int16_t* codes, float* scales) {
  auto block = load_block<BlockIq3S>(bytes);
  uint8_t nibbles[4];
  std::memcpy(nibbles, block.scales, sizeof nibbles);
  std::memset(block.scales, 0, sizeof block.scales);
  decode_grid(
      DType::kIQ3_S, block, kF16One, 1.0f, [&](int g) { return nibble_of(nibbles, g / 2); }, codes, scales);
}

void decode_iq1_s(const std::byte* bytes, int16_t* codes, float* scales) {
  auto block = load_block<BlockIq1S>(bytes);
  unsigned stored[8];
  for (int g = 0; g < 8; ++g) {
    stored[g] = block.high[g] >> 12u & 7u;
    block.high[g] &= 0x8fff;
  }
  decode_grid(
      DType::kIQ1_S, block, kF16Eight, 0.125f, [&](int g) { return stored[g / 2]; }, codes, scales);
}

// The scale d is spread over the top nibbles of `scales`.
void decode_iq1_m(const std::byte* bytes, int16_t* codes, float* scales) {
  auto block = load_block<BlockIq1M>(bytes);
  int group_scales[16];
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) {
    d |= (block.scales[i] >> 12u) << 4 * i;
    for (int j = 0; j < 4; ++j) group_scales[4 * i + j] = 2 * (block.scales[i] >> 3 * j & 7) + 1;
    block.scales[i] = static_cast<uint16_t>((kF16Eight >> 4 * i & 15) << 12);
  }
  scales[0] = f32_from_f16(static_cast<uint16_t>(d)) * 0.125f;
  decode_integers(DType::kIQ1_M, block, group_scales, codes);
}

void decode_nvfp4(const std::byte* bytes, int16_t* codes, float* scales) {
  auto block = load_block<BlockNvfp4>(bytes);
  for (int g = 0; g < 4; ++g) {
    scales[g] = ue4m3_halved(block.scales[g]);
    block.scales[g] = 0x40;  // two: one, halved
  }
  decode_integers(DType::kNVFP4, block, nullptr, codes);
}

}  // namespace

void decode_signed_codes(DType type, const std::byte* block, int16_t* codes, float* scales) {
  switch (type) {
    case DType::kIQ1_S: return decode_iq1_s(block, codes, scales);
    case DType::kIQ1_M: return decode_iq1_m(block, codes, scales);
    case DType::kIQ2_XXS: return decode_iq2_xxs(block, codes, scales);
    case DType::kIQ2_XS: return decode_iq2<BlockIq2Xs>(type, block, codes, scales);
    case DType::kIQ2_S: return decode_iq2<BlockIq2S>(type, block, codes, scales);
    case DType::kIQ3_XXS: return decode_iq3_xxs(block, codes, scales);
    case DType::kIQ3_S: return decode_iq3_s(block, codes, scales);
    case DType::kTQ1_0: return decode_plain<BlockTq1_0>(type, block, codes, scales, 1);
    case DType::kTQ2_0: return decode_plain<BlockTq2_0>(type, block, codes, scales, 1);
    case DType::kQ1_0: return decode_plain<BlockQ1_0>(type, block, codes, scales, 4);
    case DType::kQ2_0: return decode_plain<BlockQ2_0>(type, block, codes, scales, 2);
    case DType::kNVFP4: return decode_nvfp4(block, codes, scales);
    default: TSR_CHECK(false, "decode_signed_codes: the type has a vector unpacker");
  }
}

}  // namespace tessera::cpu
