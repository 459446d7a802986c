// IQ1, IQ2 and IQ3: codes that number points of grids. Decoding alone: good codes need a search through the
// grid under an importance matrix.
#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/blocks/iq_grids.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

uint32_t load_u32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// -1 where bit j is set, else 1.
int sign_of(unsigned signs, int j) { return 1 - 2 * static_cast<int>(signs >> j & 1); }

void decode_iq2_point(unsigned point, unsigned signs, float scale, float* x) {
  for (int j = 0; j < 8; ++j) x[j] = scale * static_cast<float>(iq2_grid_value(point, j) * sign_of(signs, j));
}

float iq2_scale(float d, unsigned scale) { return d * (0.5f + static_cast<float>(scale)) * 0.25f; }

void decode_iq1_point(unsigned point, float delta, float scale, float* x) {
  for (int j = 0; j < 8; ++j) x[j] = scale * (static_cast<float>(iq1_grid_value(point, j)) + delta);
}

}  // namespace

void decode_iq2_xxs(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq2Xxs, 256>(blocks, out, block_count, [](const BlockIq2Xxs& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* codes = block.codes + 8 * g;
      const uint32_t rest = load_u32(codes + 4);
      const float scale = iq2_scale(d, rest >> 28);
      for (int i = 0; i < 4; ++i)
        decode_iq2_point(kIq2XxsGrid[codes[i]], iq_signs(rest >> 7 * i & 127), scale, x + 32 * g + 8 * i);
    }
  });
}

void decode_iq2_xs(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq2Xs, 256>(blocks, out, block_count, [](const BlockIq2Xs& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int i = 0; i < 32; ++i) {
      const float scale = iq2_scale(d, block.scales[i / 4] >> 4 * (i / 2 % 2) & 15);
      decode_iq2_point(kIq2XsGrid[block.codes[i] & 511], iq_signs(block.codes[i] >> 9), scale, x + 8 * i);
    }
  });
}

void decode_iq2_s(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq2S, 256>(blocks, out, block_count, [](const BlockIq2S& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int i = 0; i < 32; ++i) {
      const float scale = iq2_scale(d, block.scales[i / 4] >> 4 * (i / 2 % 2) & 15);
      const unsigned code = block.codes[i] | (block.high[i / 4] >> 2 * (i % 4) & 3u) << 8;
      decode_iq2_point(kIq2SGrid[code], block.signs[i], scale, x + 8 * i);
    }
  });
}

void decode_iq3_xxs(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq3Xxs, 256>(blocks, out, block_count, [](const BlockIq3Xxs& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int g = 0; g < 8; ++g) {
      const uint32_t rest = load_u32(block.signs + 4 * g);
      const float scale = d * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
      for (int i = 0; i < 8; ++i) {
        const unsigned point = kIq3XxsGrid[block.codes[8 * g + i]];
        const unsigned signs = iq_signs(rest >> 7 * (i / 2) & 127) >> 4 * (i % 2);
        for (int j = 0; j < 4; ++j) {
          const int value = iq3_xxs_grid_value(point, j) * sign_of(signs, j);
          x[32 * g + 4 * i + j] = scale * static_cast<float>(value);
        }
      }
    }
  });
}

void decode_iq3_s(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq3S, 256>(blocks, out, block_count, [](const BlockIq3S& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int i = 0; i < 64; ++i) {
      const float scale = d * static_cast<float>(1 + 2 * (block.scales[i / 16] >> 4 * (i / 8 % 2) & 15));
      const unsigned point = kIq3SGrid[block.codes[i] | (block.high[i / 8] >> i % 8 & 1u) << 8];
      const unsigned signs = block.signs[i / 2] >> 4 * (i % 2);
      for (int j = 0; j < 4; ++j)
        x[4 * i + j] = scale * static_cast<float>(iq3_s_grid_value(point, j) * sign_of(signs, j));
    }
  });
}

void decode_iq1_s(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq1S, 256>(blocks, out, block_count, [](const BlockIq1S& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int i = 0; i < 32; ++i) {
      const unsigned high = block.high[i / 4];
      const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
      const unsigned code = block.codes[i] | (high >> 3 * (i % 4) & 7) << 8;
      decode_iq1_point(kIq1Grid[code], (high & 0x8000) != 0 ? -0.125f : 0.125f, scale, x + 8 * i);
    }
  });
}

void decode_iq1_m(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq1M, 256>(blocks, out, block_count, [](const BlockIq1M& block, float* x) {
    unsigned bits = 0;
    for (int k = 0; k < 4; ++k) bits |= (block.scales[k] >> 12u) << 4 * k;
    const float d = f32_from_f16(static_cast<uint16_t>(bits));
    for (int i = 0; i < 32; ++i) {
      const unsigned high = block.high[i / 2] >> 4 * (i % 2);
      const float scale = d * static_cast<float>(2 * (block.scales[i / 8] >> 3 * (i / 2 % 4) & 7) + 1);
      const unsigned code = block.codes[i] | (high & 7) << 8;
      decode_iq1_point(kIq1Grid[code], (high & 8) != 0 ? -0.125f : 0.125f, scale, x + 8 * i);
    }
  });
}

}  // namespace tessera
