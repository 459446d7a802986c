// IQ4_NL, IQ4_XS, MXFP4, NVFP4, NF4: codes of four bits for uneven levels.
#include <algorithm>
#include <bit>

#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/scale_search.h"
#include "graph/base/blocks/scaled_groups.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

// Half-way points between levels are multiples of a half, so that an interval of a half has one nearest
// level.
struct NearestIq4Nl {
  float levels[481] = {};
  constexpr NearestIq4Nl() {
    for (int i = 0, code = 0; i < 481; ++i) {
      const float middle = -127.0f + 0.5f * static_cast<float>(i) + 0.25f;
      while (code < 15 && 2.0f * middle > static_cast<float>(kIq4NlValues[code] + kIq4NlValues[code + 1]))
        ++code;
      levels[i] = kIq4NlValues[code];
    }
  }
};
constexpr NearestIq4Nl kNearestIq4Nl;

struct Iq4NlLevels {
  FloatLanes nearest(FloatLanes y) const {
    using Indices = int32_t __attribute__((vector_size(16)));
    const auto at = __builtin_convertvector((clamp_lanes(y, -127.0f, 113.0f) + 127.0f) * 2.0f, Indices);
    const float* levels = kNearestIq4Nl.levels;
    return FloatLanes{levels[at[0]], levels[at[1]], levels[at[2]], levels[at[3]]};
  }
};

// Each half-way point that a magnitude passes adds a step.
struct E2m1Levels {
  FloatLanes nearest(FloatLanes y) const {
    const FloatLanes magnitude = y < 0.0f ? -y : y;
    FloatLanes level = all_lanes(0);
    for (int code = 0; code < 7; ++code) {
      const float low = kE2m1Doubled[code], high = kE2m1Doubled[code + 1];
      level += magnitude > 0.5f * (low + high) ? all_lanes(high - low) : all_lanes(0);
    }
    return y < 0.0f ? -level : level;
  }
};

// The code of each level, counted from -127.
struct LevelCodes {
  uint8_t codes[241] = {};
  constexpr explicit LevelCodes(const int8_t (&values)[16]) {
    for (int code = 15; code >= 0; --code) codes[values[code] + 127] = static_cast<uint8_t>(code);
  }
  unsigned of(float level) const { return codes[static_cast<int>(level) + 127]; }
};
constexpr LevelCodes kIq4NlCodes(kIq4NlValues), kE2m1Codes(kE2m1Doubled);

template <int Half>
void store_halves(const LevelCodes& table, const float* levels, uint8_t* codes) {
  for (int j = 0; j < Half; ++j)
    codes[j] = static_cast<uint8_t>(table.of(levels[j]) | table.of(levels[Half + j]) << 4);
}

constexpr ScaleRange kIq4NlRange{104, 136, 33};

// The largest finite scale is code 0x7e.
unsigned nearest_ue4m3(float halved) {
  unsigned code = 0;
  while (code < 0x7e && halved > 0.5f * (ue4m3_halved(code) + ue4m3_halved(code + 1))) ++code;
  return code;
}

}  // namespace

void encode_iq4_nl(const float* x, const float* weights, std::byte* out) {
  BlockIq4Nl block;
  block.d = f16_scale(search_scale<32>(x, weights, Iq4NlLevels{}, kIq4NlRange).scale);
  float chosen[32];
  round_scaled<32>(x, weights, Iq4NlLevels{}, f32_from_f16(block.d), chosen);
  store_halves<16>(kIq4NlCodes, chosen, block.codes);
  std::memcpy(out, &block, sizeof block);
}

void encode_iq4_xs(const float* x, const float* weights, std::byte* out) {
  const auto groups = encode_scaled_groups<8, 32>(x, weights, Iq4NlLevels{}, kIq4NlRange, -32, 31);
  BlockIq4Xs block{groups.d, 0, {}, {}};
  for (int g = 0; g < 8; ++g) {
    const auto scale = static_cast<unsigned>(groups.scales[g] + 32);
    block.scales_low[g / 2] |= static_cast<uint8_t>((scale & 15) << 4 * (g % 2));
    block.scales_high |= static_cast<uint16_t>((scale >> 4) << 2 * g);
    store_halves<16>(kIq4NlCodes, groups.levels + 32 * g, block.codes + 16 * g);
  }
  std::memcpy(out, &block, sizeof block);
}

void encode_mxfp4(const float* x, const float* weights, std::byte* out) {
  const float largest = largest_magnitude<32>(x);
  // 2^power is above the largest magnitude, at most twice it. Values
  // and errors are relative to it, so that squares stay within f32.
  int power = 0;
  std::frexp(largest, &power);
  float relative[32], chosen[32];
  for (int j = 0; j < 32; ++j) relative[j] = std::ldexp(x[j], -power);
  BlockMxfp4 block{};
  float least = 0;
  // The largest level is 12: at 2^-4 the greatest values may be
  // cut, at 2^-3 none is; at smaller steps unimportant ones may be.
  for (int step = -8; step <= -3 && largest > 0.0f; ++step) {
    const int exponent = step + power + 128 < 0 ? 0 : step + power + 128 > 254 ? 254 : step + power + 128;
    const float scale = std::ldexp(1.0f, exponent - power - 128);
    const float error = round_scaled<32>(relative, weights, E2m1Levels{}, scale, chosen);
    if (step > -8 && !(error < least)) continue;
    least = error;
    block.exponent = static_cast<uint8_t>(exponent);
    store_halves<16>(kE2m1Codes, chosen, block.codes);
  }
  std::memcpy(out, &block, sizeof block);
}

void encode_nvfp4(const float* x, const float* weights, std::byte* out) {
  BlockNvfp4 block{};
  for (int g = 0; g < 4; ++g) {
    const float *group = x + 16 * g, *group_weights = weights + 16 * g;
    const float best = search_scale<16>(group, group_weights, E2m1Levels{}, {8, 16, 17, false}).scale;
    const unsigned nearest[] = {nearest_ue4m3(std::fabs(best)),
                                nearest_ue4m3(largest_magnitude<16>(group) / 12.0f)};
    float least = -1, chosen[16];
    for (const unsigned code : nearest) {
      for (unsigned near = code == 0 ? 0 : code - 1; near <= code + 1 && near <= 0x7e; ++near) {
        const float error = round_scaled<16>(group, group_weights, E2m1Levels{}, ue4m3_halved(near), chosen);
        if (least >= 0.0f && !(error < least)) continue;
        least = error;
        block.scales[g] = static_cast<uint8_t>(near);
        store_halves<8>(kE2m1Codes, chosen, block.codes + 8 * g);
      }
    }
  }
  std::memcpy(out, &block, sizeof block);
}

// The code is the number of half-way points below a value: a tie takes the lower. Factors and rounding are those of
// bitsandbytes, so the codes are too.
void encode_nf4(const float* x, const float*, std::byte* out) {
  constexpr float kLeastScale = 1e-38f;  // the inverse of a smaller one is infinite
  const float scale = largest_magnitude<64>(x), inverse = 1.0f / std::max(scale, kLeastScale);
  const auto code_of = [&](float value) {
    const float relative = value * inverse;
    unsigned code = 0;
    for (int i = 0; i < 15; ++i) {
      const double middle =
          0.5 * (static_cast<double>(kNf4Values[i]) + static_cast<double>(kNf4Values[i + 1]));
      code += relative > static_cast<float>(middle) ? 1 : 0;
    }
    return code;
  };
  BlockNf4 block{};
  std::memcpy(block.scale, &scale, sizeof scale);
  for (int j = 0; j < 32; ++j)
    block.codes[j] = static_cast<uint8_t>(code_of(x[2 * j]) << 4 | code_of(x[2 * j + 1]));
  std::memcpy(out, &block, sizeof block);
}

}  // namespace tessera
