#include "runtime/backends/cpu/kernels/quantized_grids.h"

#include <array>
#include <cstring>

#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/iq_grids.h"
#include "graph/base/half.h"

namespace tessera::cpu {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101;

// Packs value(point, 0), value(point, 1), ... into the bytes of a word, lowest first.
template <class Word, class Value>
constexpr Word expand_point(unsigned point, const Value& value) {
  Word word = 0;
  for (int j = 0; j < static_cast<int>(sizeof word); ++j)
    word |= static_cast<Word>(static_cast<uint8_t>(value(point, j))) << 8 * j;
  return word;
}
template <class Word, size_t kPoints, class Value>
constexpr std::array<Word, kPoints> expand_grid(const uint16_t (&grid)[kPoints], const Value& value) {
  std::array<Word, kPoints> words{};
  for (size_t i = 0; i < kPoints; ++i) words[i] = expand_point<Word>(grid[i], value);
  return words;
}

// Eight (IQ3: four) codes a point.
constexpr auto kIq2XxsPoints = expand_grid<uint64_t>(kIq2XxsGrid, iq2_grid_value);
constexpr auto kIq2XsPoints = expand_grid<uint64_t>(kIq2XsGrid, iq2_grid_value);
constexpr auto kIq2SPoints = expand_grid<uint64_t>(kIq2SGrid, iq2_grid_value);
constexpr auto kIq3XxsPoints = expand_grid<uint32_t>(kIq3XxsGrid, iq3_xxs_grid_value);
constexpr auto kIq3SPoints = expand_grid<uint32_t>(kIq3SGrid, iq3_s_grid_value);
// IQ1: 8 * value + 1 and 8 * value - 1: eighths, with the block's delta of +1/8 or -1/8 added.
constexpr auto kIq1PointsAbove =
    expand_grid<uint64_t>(kIq1Grid, [](unsigned point, int j) { return 8 * iq1_grid_value(point, j) + 1; });
constexpr auto kIq1PointsBelow =
    expand_grid<uint64_t>(kIq1Grid, [](unsigned point, int j) { return 8 * iq1_grid_value(point, j) - 1; });

// masks[signs]: byte j is 0xff if bit j of `signs` is set.
constexpr std::array<uint64_t, 256> make_sign_masks() {
  std::array<uint64_t, 256> masks{};
  for (size_t signs = 0; signs < masks.size(); ++signs)
    for (size_t j = 0; j < 8; ++j)
      if (signs >> j & 1) masks[signs] |= uint64_t{0xff} << 8 * j;
  return masks;
}
constexpr auto kSignMasks = make_sign_masks();

template <class Block>
Block copy_block(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

uint32_t copy_u32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Eight codes with their signs. No code of a grid is 0, so that no byte carries into the next.
void store_codes(uint64_t codes, unsigned signs, int8_t* out) {
  const uint64_t mask = kSignMasks[signs];
  const uint64_t word = (codes ^ mask) + (mask & kOnes);
  std::memcpy(out, &word, sizeof word);
}

unsigned nibble_of(const uint8_t* nibbles, int i) { return nibbles[i / 2] >> 4 * (i % 2) & 15u; }

int16_t odd_scale(unsigned stored) { return static_cast<int16_t>(2 * stored + 1); }

}  // namespace

void decode_iq2_xxs(const std::byte* bytes, GridCodes* out) {
  const auto block = copy_block<BlockIq2Xxs>(bytes);
  out->scale = f32_from_f16(block.d) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint8_t* codes = block.codes + 8 * g;
    const uint32_t rest = copy_u32(codes + 4);
    out->scales[2 * g] = out->scales[2 * g + 1] = odd_scale(rest >> 28);
    for (int i = 0; i < 4; ++i)
      store_codes(kIq2XxsPoints[codes[i]], iq_signs(rest >> 7 * i & 127), out->codes + 32 * g + 8 * i);
  }
}

void decode_iq2_xs(const std::byte* bytes, GridCodes* out) {
  const auto block = copy_block<BlockIq2Xs>(bytes);
  out->scale = f32_from_f16(block.d) * 0.125f;
  for (int g = 0; g < 16; ++g) out->scales[g] = odd_scale(nibble_of(block.scales, g));
  for (int i = 0; i < 32; ++i)
    store_codes(kIq2XsPoints[block.codes[i] & 511], iq_signs(block.codes[i] >> 9), out->codes + 8 * i);
}

void decode_iq2_s(const std::byte* bytes, GridCodes* out) {
  const auto block = copy_block<BlockIq2S>(bytes);
  out->scale = f32_from_f16(block.d) * 0.125f;
  for (int g = 0; g < 16; ++g) out->scales[g] = odd_scale(nibble_of(block.scales, g));
  for (int i = 0; i < 32; ++i) {
    const unsigned code = block.codes[i] | (block.high[i / 4] >> 2 * (i % 4) & 3u) << 8;
    store_codes(kIq2SPoints[code], block.signs[i], out->codes + 8 * i);
  }
}

void decode_iq3_xxs(const std::byte* bytes, GridCodes* out) {
  const auto block = copy_block<BlockIq3Xxs>(bytes);
  out->scale = f32_from_f16(block.d) * 0.25f;
  for (int g = 0; g < 8; ++g) {
    const uint32_t rest = copy_u32(block.signs + 4 * g);
    out->scales[2 * g] = out->scales[2 * g + 1] = odd_scale(rest >> 28);
    for (int i = 0; i < 4; ++i) {
      const uint8_t* codes = block.codes + 8 * g + 2 * i;
      store_codes(kIq3XxsPoints[codes[0]] | uint64_t{kIq3XxsPoints[codes[1]]} << 32,
                  iq_signs(rest >> 7 * i & 127), out->codes + 32 * g + 8 * i);
    }
  }
}

void decode_iq3_s(const std::byte* bytes, GridCodes* out) {
  const auto block = copy_block<BlockIq3S>(bytes);
  out->scale = f32_from_f16(block.d);
  for (int g = 0; g < 16; ++g) out->scales[g] = odd_scale(nibble_of(block.scales, g / 2));
  for (int i = 0; i < 32; ++i) {
    const unsigned high = block.high[i / 4] >> 2 * (i % 4);
    const unsigned first = block.codes[2 * i] | (high & 1u) << 8;
    const unsigned second = block.codes[2 * i + 1] | (high & 2u) << 7;
    store_codes(kIq3SPoints[first] | uint64_t{kIq3SPoints[second]} << 32, block.signs[i], out->codes + 8 * i);
  }
}

void decode_iq1_s(const std::byte* bytes, GridCodes* out) {
  const auto block = copy_block<BlockIq1S>(bytes);
  out->scale = f32_from_f16(block.d) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const unsigned high = block.high[g];
    const auto& points = (high & 0x8000) != 0 ? kIq1PointsBelow : kIq1PointsAbove;
    out->scales[2 * g] = out->scales[2 * g + 1] = odd_scale(high >> 12 & 7);
    for (int i = 0; i < 4; ++i) {
      const unsigned code = block.codes[4 * g + i] | (high >> 3 * i & 7u) << 8;
      std::memcpy(out->codes + 32 * g + 8 * i, &points[code], 8);
    }
  }
}

// The scale d is spread over the top nibbles of `scales`.
void decode_iq1_m(const std::byte* bytes, GridCodes* out) {
  const auto block = copy_block<BlockIq1M>(bytes);
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) {
    d |= (block.scales[i] >> 12u) << 4 * i;
    for (int j = 0; j < 4; ++j) out->scales[4 * i + j] = odd_scale(block.scales[i] >> 3 * j & 7u);
  }
  out->scale = f32_from_f16(static_cast<uint16_t>(d)) * 0.125f;
  for (int i = 0; i < 32; ++i) {
    const unsigned high = block.high[i / 2] >> 4 * (i % 2);
    const auto& points = (high & 8) != 0 ? kIq1PointsBelow : kIq1PointsAbove;
    std::memcpy(out->codes + 8 * i, &points[block.codes[i] | (high & 7u) << 8], 8);
  }
}

}  // namespace tessera::cpu
