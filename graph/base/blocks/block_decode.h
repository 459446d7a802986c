// Block decoders: the values of one block as f32, with the bits that GGML's dequantize_row_* gives (NF4: bitsandbytes'). For the
// CPU and, in CUDA files, for the device.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/iq_grids.h"
#include "graph/base/dtype.h"
#include "graph/base/half.h"

#ifdef __CUDACC__
#define TSR_BLOCK_DECODE __device__ inline
#else
#define TSR_BLOCK_DECODE inline
#endif

namespace tessera {

// Codes of five bits: the nibbles of a Q5 block, with its high bits.
template <class Block>
TSR_BLOCK_DECODE void load_codes5(const Block& block, int (&codes)[32]) {
  uint32_t high;
  std::memcpy(&high, block.high, sizeof high);
  for (int j = 0; j < 32; ++j) {
    const int nibble = j < 16 ? block.codes[j] & 15 : block.codes[j - 16] >> 4;
    codes[j] = nibble | static_cast<int>(high >> j & 1) << 4;
  }
}

// 2 * Half elements: low nibbles first.
template <int Half>
TSR_BLOCK_DECODE void decode_halves(const uint8_t* codes, const int8_t (&values)[16], float scale, float* x) {
  for (int j = 0; j < Half; ++j) {
    x[j] = static_cast<float>(values[codes[j] & 15]) * scale;
    x[Half + j] = static_cast<float>(values[codes[j] >> 4]) * scale;
  }
}

TSR_BLOCK_DECODE uint32_t load_block_u32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// -1 where bit j is set, else 1.
TSR_BLOCK_DECODE int iq_sign(unsigned signs, int j) { return 1 - 2 * static_cast<int>(signs >> j & 1); }

TSR_BLOCK_DECODE void decode_iq2_point(unsigned point, unsigned signs, float scale, float* x) {
  for (int j = 0; j < 8; ++j) x[j] = scale * static_cast<float>(iq2_grid_value(point, j) * iq_sign(signs, j));
}

TSR_BLOCK_DECODE float iq2_scale(float d, unsigned scale) {
  return d * (0.5f + static_cast<float>(scale)) * 0.25f;
}

TSR_BLOCK_DECODE void decode_iq1_point(unsigned point, float delta, float scale, float* x) {
  for (int j = 0; j < 8; ++j) x[j] = scale * (static_cast<float>(iq1_grid_value(point, j)) + delta);
}

// Trit `n` of each of `Bytes` bytes.
template <int Bytes>
TSR_BLOCK_DECODE void decode_trits(const uint8_t* bytes, int n, float d, float* x) {
  constexpr unsigned kPowersOf3[] = {1, 3, 9, 27, 81};
  for (int l = 0; l < Bytes; ++l) {
    const unsigned rest = bytes[l] * kPowersOf3[n] & 255;
    x[l] = static_cast<float>(static_cast<int>(rest * 3 >> 8) - 1) * d;
  }
}

// ---- 32 elements on evenly spaced levels

TSR_BLOCK_DECODE void decode_block(const BlockQ4_0& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int j = 0; j < 16; ++j) x[j] = static_cast<float>((block.codes[j] & 15) - 8) * d;
  for (int j = 0; j < 16; ++j) x[16 + j] = static_cast<float>((block.codes[j] >> 4) - 8) * d;
}

TSR_BLOCK_DECODE void decode_block(const BlockQ4_1& block, float* x) {
  const float d = f32_from_f16(block.d), m = f32_from_f16(block.m);
  for (int j = 0; j < 16; ++j) x[j] = static_cast<float>(block.codes[j] & 15) * d + m;
  for (int j = 0; j < 16; ++j) x[16 + j] = static_cast<float>(block.codes[j] >> 4) * d + m;
}

TSR_BLOCK_DECODE void decode_block(const BlockQ5_0& block, float* x) {
  const float d = f32_from_f16(block.d);
  int codes[32];
  load_codes5(block, codes);
  for (int j = 0; j < 32; ++j) x[j] = static_cast<float>(codes[j] - 16) * d;
}

TSR_BLOCK_DECODE void decode_block(const BlockQ5_1& block, float* x) {
  const float d = f32_from_f16(block.d), m = f32_from_f16(block.m);
  int codes[32];
  load_codes5(block, codes);
  for (int j = 0; j < 32; ++j) x[j] = static_cast<float>(codes[j]) * d + m;
}

TSR_BLOCK_DECODE void decode_block(const BlockQ8_0& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int j = 0; j < 32; ++j) x[j] = static_cast<float>(block.codes[j]) * d;
}

// ---- levels from a codebook

TSR_BLOCK_DECODE void decode_block(const BlockIq4Nl& block, float* x) {
  decode_halves<16>(block.codes, kIq4NlValues, f32_from_f16(block.d), x);
}

TSR_BLOCK_DECODE void decode_block(const BlockIq4Xs& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int g = 0; g < 8; ++g) {
    const int low = block.scales_low[g / 2] >> 4 * (g % 2) & 15;
    const int scale = (low | (block.scales_high >> 2 * g & 3) << 4) - 32;
    decode_halves<16>(block.codes + 16 * g, kIq4NlValues, d * static_cast<float>(scale), x + 32 * g);
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockMxfp4& block, float* x) {
  decode_halves<16>(block.codes, kE2m1Doubled, std::bit_cast<float>(e8m0_halved_bits(block.exponent)), x);
}

TSR_BLOCK_DECODE void decode_block(const BlockNvfp4& block, float* x) {
  for (int g = 0; g < 4; ++g)
    decode_halves<8>(block.codes + 8 * g, kE2m1Doubled, ue4m3_halved(block.scales[g]), x + 16 * g);
}

TSR_BLOCK_DECODE void decode_block(const BlockNf4& block, float* x) {
  float scale;
  std::memcpy(&scale, block.scale, sizeof scale);
  for (int j = 0; j < 32; ++j) {
    x[2 * j] = kNf4Values[block.codes[j] >> 4] * scale;
    x[2 * j + 1] = kNf4Values[block.codes[j] & 15] * scale;
  }
}

// ---- 256 elements in groups whose integer scales share f16 factors

TSR_BLOCK_DECODE void decode_block(const BlockQ2_K& block, float* x) {
  const float d = f32_from_f16(block.d), dmin = f32_from_f16(block.dmin);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(block.scales[g] & 15);
    const float min = dmin * static_cast<float>(block.scales[g] >> 4);
    const uint8_t* codes = block.codes + 32 * (g / 8) + 16 * (g % 2);
    const int shift = 2 * (g / 2 % 4);
    for (int l = 0; l < 16; ++l) x[16 * g + l] = scale * static_cast<float>(codes[l] >> shift & 3) - min;
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockQ3_K& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(q3_k_scale(block.scales, g));
    const uint8_t* codes = block.codes + 32 * (g / 8) + 16 * (g % 2);
    const uint8_t* high = block.high + 16 * (g % 2);
    const int shift = 2 * (g / 2 % 4), bit = g / 2;
    for (int l = 0; l < 16; ++l) {
      const int code = (codes[l] >> shift & 3) | (high[l] >> bit & 1) << 2;
      x[16 * g + l] = scale * static_cast<float>(code - 4);
    }
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockQ4_K& block, float* x) {
  const float d = f32_from_f16(block.d), dmin = f32_from_f16(block.dmin);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(q4_k_scale(block.scales, g));
    const float min = dmin * static_cast<float>(q4_k_min(block.scales, g));
    const uint8_t* codes = block.codes + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int l = 0; l < 32; ++l) x[32 * g + l] = scale * static_cast<float>(codes[l] >> shift & 15) - min;
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockQ5_K& block, float* x) {
  const float d = f32_from_f16(block.d), dmin = f32_from_f16(block.dmin);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(q4_k_scale(block.scales, g));
    const float min = dmin * static_cast<float>(q4_k_min(block.scales, g));
    const uint8_t* codes = block.codes + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int l = 0; l < 32; ++l) {
      const int code = (codes[l] >> shift & 15) | (block.high[l] >> g & 1) << 4;
      x[32 * g + l] = scale * static_cast<float>(code) - min;
    }
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockQ6_K& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(block.scales[g]);
    const int quarter = g / 2 % 4;
    const uint8_t* low = block.low + 64 * (g / 8) + 32 * (quarter % 2) + 16 * (g % 2);
    const uint8_t* high = block.high + 32 * (g / 8) + 16 * (g % 2);
    const int low_shift = 4 * (quarter / 2), high_shift = 2 * quarter;
    for (int l = 0; l < 16; ++l) {
      const int code = (low[l] >> low_shift & 15) | (high[l] >> high_shift & 3) << 4;
      x[16 * g + l] = scale * static_cast<float>(code - 32);
    }
  }
}

// ---- codes that are indices of grid points

TSR_BLOCK_DECODE void decode_block(const BlockIq2Xxs& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* codes = block.codes + 8 * g;
    const uint32_t rest = load_block_u32(codes + 4);
    const float scale = iq2_scale(d, rest >> 28);
    for (int i = 0; i < 4; ++i)
      decode_iq2_point(kIq2XxsGrid[codes[i]], iq_signs(rest >> 7 * i & 127), scale, x + 32 * g + 8 * i);
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockIq2Xs& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 32; ++i) {
    const float scale = iq2_scale(d, block.scales[i / 4] >> 4 * (i / 2 % 2) & 15);
    decode_iq2_point(kIq2XsGrid[block.codes[i] & 511], iq_signs(block.codes[i] >> 9), scale, x + 8 * i);
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockIq2S& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 32; ++i) {
    const float scale = iq2_scale(d, block.scales[i / 4] >> 4 * (i / 2 % 2) & 15);
    const unsigned code = block.codes[i] | (block.high[i / 4] >> 2 * (i % 4) & 3u) << 8;
    decode_iq2_point(kIq2SGrid[code], block.signs[i], scale, x + 8 * i);
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockIq3Xxs& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int g = 0; g < 8; ++g) {
    const uint32_t rest = load_block_u32(block.signs + 4 * g);
    const float scale = d * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    for (int i = 0; i < 8; ++i) {
      const unsigned point = kIq3XxsGrid[block.codes[8 * g + i]];
      const unsigned signs = iq_signs(rest >> 7 * (i / 2) & 127) >> 4 * (i % 2);
      for (int j = 0; j < 4; ++j) {
        const int value = iq3_xxs_grid_value(point, j) * iq_sign(signs, j);
        x[32 * g + 4 * i + j] = scale * static_cast<float>(value);
      }
    }
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockIq3S& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 64; ++i) {
    const float scale = d * static_cast<float>(1 + 2 * (block.scales[i / 16] >> 4 * (i / 8 % 2) & 15));
    const unsigned point = kIq3SGrid[block.codes[i] | (block.high[i / 8] >> i % 8 & 1u) << 8];
    const unsigned signs = block.signs[i / 2] >> 4 * (i % 2);
    for (int j = 0; j < 4; ++j)
      x[4 * i + j] = scale * static_cast<float>(iq3_s_grid_value(point, j) * iq_sign(signs, j));
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockIq1S& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 32; ++i) {
    const unsigned high = block.high[i / 4];
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    const unsigned code = block.codes[i] | (high >> 3 * (i % 4) & 7) << 8;
    decode_iq1_point(kIq1Grid[code], (high & 0x8000) != 0 ? -0.125f : 0.125f, scale, x + 8 * i);
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockIq1M& block, float* x) {
  unsigned bits = 0;
  for (int k = 0; k < 4; ++k) bits |= (block.scales[k] >> 12u) << 4 * k;
  const float d = f32_from_f16(static_cast<uint16_t>(bits));
  for (int i = 0; i < 32; ++i) {
    const unsigned high = block.high[i / 2] >> 4 * (i % 2);
    const float scale = d * static_cast<float>(2 * (block.scales[i / 8] >> 3 * (i / 2 % 4) & 7) + 1);
    const unsigned code = block.codes[i] | (high & 7) << 8;
    decode_iq1_point(kIq1Grid[code], (high & 8) != 0 ? -0.125f : 0.125f, scale, x + 8 * i);
  }
}

// ---- levels -1, 0, 1 and similar sets

TSR_BLOCK_DECODE void decode_block(const BlockTq1_0& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int n = 0; n < 5; ++n) decode_trits<32>(block.codes, n, d, x + 32 * n);
  for (int n = 0; n < 5; ++n) decode_trits<16>(block.codes + 32, n, d, x + 160 + 16 * n);
  for (int n = 0; n < 4; ++n) decode_trits<4>(block.last, n, d, x + 240 + 4 * n);
}

TSR_BLOCK_DECODE void decode_block(const BlockTq2_0& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int s = 0; s < 8; ++s) {
    const uint8_t* codes = block.codes + 32 * (s / 4);
    const int shift = 2 * (s % 4);
    for (int l = 0; l < 32; ++l) x[32 * s + l] = static_cast<float>((codes[l] >> shift & 3) - 1) * d;
  }
}

TSR_BLOCK_DECODE void decode_block(const BlockQ1_0& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) x[8 * i + j] = static_cast<float>(2 * (block.codes[i] >> j & 1) - 1) * d;
}

TSR_BLOCK_DECODE void decode_block(const BlockQ2_0& block, float* x) {
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 4; ++j) x[4 * i + j] = static_cast<float>((block.codes[i] >> 2 * j & 3) - 1) * d;
}

// f(Block{}) with the layout of a block type; otherwise(type) for any other type.
template <class F, class G>
auto dispatch_block(DType type, F&& f, G&& otherwise) {
  switch (type) {
    case DType::kQ4_0: return f(BlockQ4_0{});
    case DType::kQ4_1: return f(BlockQ4_1{});
    case DType::kQ5_0: return f(BlockQ5_0{});
    case DType::kQ5_1: return f(BlockQ5_1{});
    case DType::kQ8_0: return f(BlockQ8_0{});
    case DType::kIQ4_NL: return f(BlockIq4Nl{});
    case DType::kIQ4_XS: return f(BlockIq4Xs{});
    case DType::kMXFP4: return f(BlockMxfp4{});
    case DType::kNVFP4: return f(BlockNvfp4{});
    case DType::kNF4: return f(BlockNf4{});
    case DType::kQ2_K: return f(BlockQ2_K{});
    case DType::kQ3_K: return f(BlockQ3_K{});
    case DType::kQ4_K: return f(BlockQ4_K{});
    case DType::kQ5_K: return f(BlockQ5_K{});
    case DType::kQ6_K: return f(BlockQ6_K{});
    case DType::kIQ2_XXS: return f(BlockIq2Xxs{});
    case DType::kIQ2_XS: return f(BlockIq2Xs{});
    case DType::kIQ2_S: return f(BlockIq2S{});
    case DType::kIQ3_XXS: return f(BlockIq3Xxs{});
    case DType::kIQ3_S: return f(BlockIq3S{});
    case DType::kIQ1_S: return f(BlockIq1S{});
    case DType::kIQ1_M: return f(BlockIq1M{});
    case DType::kTQ1_0: return f(BlockTq1_0{});
    case DType::kTQ2_0: return f(BlockTq2_0{});
    case DType::kQ1_0: return f(BlockQ1_0{});
    case DType::kQ2_0: return f(BlockQ2_0{});
    default: return otherwise(type);
  }
}

}  // namespace tessera
