#include "graph/base/blocks/block_codec.h"

#include <cstring>

#include "graph/base/blocks/block_families.h"
#include "graph/base/half.h"
#include "graph/base/status.h"

namespace tessera {
namespace {

template <class Stored, class Convert>
void convert_each(const std::byte* stored, float* out, int64_t count, const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, stored + i * static_cast<int64_t>(sizeof value), sizeof value);
    out[i] = convert(value);
  }
}

void decode_f32(const std::byte* stored, float* out, int64_t count) {
  if (count > 0) std::memcpy(out, stored, static_cast<size_t>(count) * sizeof(float));
}
void decode_f64(const std::byte* stored, float* out, int64_t count) {
  convert_each<double>(stored, out, count, [](double value) { return static_cast<float>(value); });
}
void decode_f16(const std::byte* stored, float* out, int64_t count) {
  convert_each<uint16_t>(stored, out, count, f32_from_f16);
}
void decode_bf16(const std::byte* stored, float* out, int64_t count) {
  convert_each<uint16_t>(stored, out, count, f32_from_bf16);
}

struct BlockCodec {
  DType type;
  DecodeBlocks* decode;
};
constexpr BlockCodec kCodecs[] = {
    {DType::kF32, decode_f32},       {DType::kF64, decode_f64},         {DType::kF16, decode_f16},
    {DType::kBF16, decode_bf16},     {DType::kQ4_0, decode_q4_0},       {DType::kQ4_1, decode_q4_1},
    {DType::kQ5_0, decode_q5_0},     {DType::kQ5_1, decode_q5_1},       {DType::kQ8_0, decode_q8_0},
    {DType::kQ2_K, decode_q2_k},     {DType::kQ3_K, decode_q3_k},       {DType::kQ4_K, decode_q4_k},
    {DType::kQ5_K, decode_q5_k},     {DType::kQ6_K, decode_q6_k},       {DType::kIQ1_S, decode_iq1_s},
    {DType::kIQ1_M, decode_iq1_m},   {DType::kIQ2_XXS, decode_iq2_xxs}, {DType::kIQ2_XS, decode_iq2_xs},
    {DType::kIQ2_S, decode_iq2_s},   {DType::kIQ3_XXS, decode_iq3_xxs}, {DType::kIQ3_S, decode_iq3_s},
    {DType::kIQ4_NL, decode_iq4_nl}, {DType::kIQ4_XS, decode_iq4_xs},   {DType::kTQ1_0, decode_tq1_0},
    {DType::kTQ2_0, decode_tq2_0},   {DType::kMXFP4, decode_mxfp4},     {DType::kNVFP4, decode_nvfp4},
    {DType::kQ1_0, decode_q1_0},     {DType::kQ2_0, decode_q2_0},
};

const BlockCodec* find_codec(DType type) {
  for (const BlockCodec& codec : kCodecs)
    if (codec.type == type) return &codec;
  return nullptr;
}

}  // namespace

bool can_decode(DType type) { return find_codec(type) != nullptr; }

void decode_blocks(DType type, const std::byte* blocks, float* out, int64_t count) {
  const BlockCodec* codec = find_codec(type);
  TSR_CHECK(codec != nullptr, "decode_blocks: the type has no values of its own");
  const int64_t elements = info(type).block_elements;
  TSR_CHECK(count >= 0 && count % elements == 0, "decode_blocks: the count is not whole blocks");
  codec->decode(blocks, out, count / elements);
}

}  // namespace tessera
