// Q2_K to Q6_K: 256 elements in groups whose integer scales (Q2_K, Q4_K, Q5_K: and minima) share f16 factors.
#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/half.h"

namespace tessera {

void decode_q2_k(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ2_K, 256>(blocks, out, block_count, [](const BlockQ2_K& block, float* x) {
    const float d = f32_from_f16(block.d), dmin = f32_from_f16(block.dmin);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * static_cast<float>(block.scales[g] & 15);
      const float min = dmin * static_cast<float>(block.scales[g] >> 4);
      const uint8_t* codes = block.codes + 32 * (g / 8) + 16 * (g % 2);
      const int shift = 2 * (g / 2 % 4);
      for (int l = 0; l < 16; ++l) x[16 * g + l] = scale * static_cast<float>(codes[l] >> shift & 3) - min;
    }
  });
}

void decode_q3_k(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ3_K, 256>(blocks, out, block_count, [](const BlockQ3_K& block, float* x) {
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
  });
}

void decode_q4_k(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ4_K, 256>(blocks, out, block_count, [](const BlockQ4_K& block, float* x) {
    const float d = f32_from_f16(block.d), dmin = f32_from_f16(block.dmin);
    for (int g = 0; g < 8; ++g) {
      const float scale = d * static_cast<float>(q4_k_scale(block.scales, g));
      const float min = dmin * static_cast<float>(q4_k_min(block.scales, g));
      const uint8_t* codes = block.codes + 32 * (g / 2);
      const int shift = 4 * (g % 2);
      for (int l = 0; l < 32; ++l) x[32 * g + l] = scale * static_cast<float>(codes[l] >> shift & 15) - min;
    }
  });
}

void decode_q5_k(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ5_K, 256>(blocks, out, block_count, [](const BlockQ5_K& block, float* x) {
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
  });
}

void decode_q6_k(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ6_K, 256>(blocks, out, block_count, [](const BlockQ6_K& block, float* x) {
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
  });
}

}  // namespace tessera
