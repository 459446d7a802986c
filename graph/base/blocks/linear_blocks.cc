// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: 32 elements on evenly spaced levels.
#include "graph/base/blocks/block_families.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/half.h"

namespace tessera {
namespace {

// Codes of five bits: the nibbles of a Q5 block, with its high bits.
template <class Block>
void load_codes5(const Block& block, int (&codes)[32]) {
  uint32_t high;
  std::memcpy(&high, block.high, sizeof high);
  for (int j = 0; j < 32; ++j) {
    const int nibble = j < 16 ? block.codes[j] & 15 : block.codes[j - 16] >> 4;
    codes[j] = nibble | static_cast<int>(high >> j & 1) << 4;
  }
}

}  // namespace

void decode_q4_0(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ4_0, 32>(blocks, out, block_count, [](const BlockQ4_0& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int j = 0; j < 16; ++j) x[j] = static_cast<float>((block.codes[j] & 15) - 8) * d;
    for (int j = 0; j < 16; ++j) x[16 + j] = static_cast<float>((block.codes[j] >> 4) - 8) * d;
  });
}

void decode_q4_1(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ4_1, 32>(blocks, out, block_count, [](const BlockQ4_1& block, float* x) {
    const float d = f32_from_f16(block.d), m = f32_from_f16(block.m);
    for (int j = 0; j < 16; ++j) x[j] = static_cast<float>(block.codes[j] & 15) * d + m;
    for (int j = 0; j < 16; ++j) x[16 + j] = static_cast<float>(block.codes[j] >> 4) * d + m;
  });
}

void decode_q5_0(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ5_0, 32>(blocks, out, block_count, [](const BlockQ5_0& block, float* x) {
    const float d = f32_from_f16(block.d);
    int codes[32];
    load_codes5(block, codes);
    for (int j = 0; j < 32; ++j) x[j] = static_cast<float>(codes[j] - 16) * d;
  });
}

void decode_q5_1(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ5_1, 32>(blocks, out, block_count, [](const BlockQ5_1& block, float* x) {
    const float d = f32_from_f16(block.d), m = f32_from_f16(block.m);
    int codes[32];
    load_codes5(block, codes);
    for (int j = 0; j < 32; ++j) x[j] = static_cast<float>(codes[j]) * d + m;
  });
}

void decode_q8_0(const std::byte* blocks, float* out, int64_t block_count) {
  decode_each<BlockQ8_0, 32>(blocks, out, block_count, [](const BlockQ8_0& block, float* x) {
    const float d = f32_from_f16(block.d);
    for (int j = 0; j < 32; ++j) x[j] = static_cast<float>(block.codes[j]) * d;
  });
}

}  // namespace tessera
