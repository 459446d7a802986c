// IQ4_NL, IQ4_XS, MXFP4, NVFP4: codes of four bits that number uneven levels.
#include <bit>

#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

// 2 * Half elements: low nibbles first.
template <int Half>
void decode_halves(const uint8_t* codes, const int8_t (&values)[16], float scale, float* x) {
  for (int j = 0; j < Half; ++j) {
    x[j] = static_cast<float>(values[codes[j] & 15]) * scale;
    x[Half + j] = static_cast<float>(values[codes[j] >> 4]) * scale;
  }
}

}  // namespace

void decode_iq4_nl(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq4Nl, 32>(blocks, out, block_count, [](const BlockIq4Nl& block, float* x) {
    decode_halves<16>(block.codes, kIq4NlValues, f32_from_f16(block.d), x);
  });
}

void decode_iq4_xs(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockIq4Xs, 256>(blocks, out, block_count, [](const BlockIq4Xs& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int g = 0; g < 8; ++g) {
      const int low = block.scales_low[g / 2] >> 4 * (g % 2) & 15;
      const int scale = (low | (block.scales_high >> 2 * g & 3) << 4) - 32;
      decode_halves<16>(block.codes + 16 * g, kIq4NlValues, d * static_cast<float>(scale), x + 32 * g);
    }
  });
}

void decode_mxfp4(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockMxfp4, 32>(blocks, out, block_count, [](const BlockMxfp4& block, float* x) {
    decode_halves<16>(block.codes, kE2m1Doubled, std::bit_cast<float>(e8m0_halved_bits(block.exponent)), x);
  });
}

void decode_nvfp4(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockNvfp4, 64>(blocks, out, block_count, [](const BlockNvfp4& block, float* x) {
    for (int g = 0; g < 4; ++g)
      decode_halves<8>(block.codes + 8 * g, kE2m1Doubled, ue4m3_halved(block.scales[g]), x + 16 * g);
  });
}

}  // namespace tessera
