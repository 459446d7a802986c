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

constexpr uint16_t kF16One = 0x3c00;
constexpr int kMost = 128;  // elements of a block

template <class Block>
Block load_block(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

template <class Block>
void decode_integers(DType type, const Block& block, int16_t* codes) {
  float values[kMost];
  const int count = info(type).block_elements;
  decode_blocks(type, reinterpret_cast<const std::byte*>(&block), values, count);
  for (int i = 0; i < count; ++i) codes[i] = static_cast<int16_t>(values[i]);
}

// Blocks with nothing but a scale d.
template <class Block>
void decode_plain(DType type, const std::byte* bytes, int16_t* codes, float* scales, int scale_count) {
  Block block = load_block<Block>(bytes);
  std::fill_n(scales, scale_count, f32_from_f16(block.d));
  block.d = kF16One;
  decode_integers(type, block, codes);
}

void decode_nvfp4(const std::byte* bytes, int16_t* codes, float* scales) {
  auto block = load_block<BlockNvfp4>(bytes);
  for (int g = 0; g < 4; ++g) {
    scales[g] = ue4m3_halved(block.scales[g]);
    block.scales[g] = 0x40;  // two: one, halved
  }
  decode_integers(DType::kNVFP4, block, codes);
}

}  // namespace

void decode_signed_codes(DType type, const std::byte* block, int16_t* codes, float* scales) {
  switch (type) {
    case DType::kQ1_0: return decode_plain<BlockQ1_0>(type, block, codes, scales, 4);
    case DType::kQ2_0: return decode_plain<BlockQ2_0>(type, block, codes, scales, 2);
    case DType::kNVFP4: return decode_nvfp4(block, codes, scales);
    default: TSR_CHECK(false, "decode_signed_codes: the type has a vector unpacker");
  }
}

}  // namespace tessera::cpu
