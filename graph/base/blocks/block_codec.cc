#include "graph/base/blocks/block_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "graph/base/blocks/block_families.h"
#include "graph/base/half.h"
#include "graph/base/status.h"
#include "graph/base/text.h"

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

void encode_f32(const float* x, const float*, std::byte* out) { std::memcpy(out, x, sizeof(float)); }
void encode_f64(const float* x, const float*, std::byte* out) {
  const double value = *x;
  std::memcpy(out, &value, sizeof value);
}
void encode_f16(const float* x, const float*, std::byte* out) {
  const uint16_t bits = f16_from_f32(*x);
  std::memcpy(out, &bits, sizeof bits);
}
void encode_bf16(const float* x, const float*, std::byte* out) {
  const uint16_t bits = bf16_from_f32(*x);
  std::memcpy(out, &bits, sizeof bits);
}

// `largest`: the greatest magnitude, on either side of zero, of the greatest f16 scale with integer scale and level.
struct BlockCodec {
  DType type;
  DecodeBlocks* decode;
  EncodeBlock* encode = nullptr;
  float largest = 0;
};
constexpr float kF16Largest = 65504, kF32Largest = std::numeric_limits<float>::max();
constexpr BlockCodec kCodecs[] = {
    {DType::kF32, decode_f32, encode_f32, kF32Largest},
    {DType::kF64, decode_f64, encode_f64, kF32Largest},
    {DType::kF16, decode_f16, encode_f16, kF16Largest},
    {DType::kBF16, decode_bf16, encode_bf16, 0x1.fep127f},
    {DType::kQ4_0, decode_each<BlockQ4_0>, encode_q4_0, kF16Largest * 7},
    {DType::kQ4_1, decode_each<BlockQ4_1>, encode_q4_1, kF16Largest},
    {DType::kQ5_0, decode_each<BlockQ5_0>, encode_q5_0, kF16Largest * 15},
    {DType::kQ5_1, decode_each<BlockQ5_1>, encode_q5_1, kF16Largest},
    {DType::kQ8_0, decode_each<BlockQ8_0>, encode_q8_0, kF16Largest * 127},
    {DType::kQ2_K, decode_each<BlockQ2_K>, encode_q2_k, kF16Largest * 15},
    {DType::kQ3_K, decode_each<BlockQ3_K>, encode_q3_k, kF16Largest * 31 * 3},
    {DType::kQ4_K, decode_each<BlockQ4_K>, encode_q4_k, kF16Largest * 63},
    {DType::kQ5_K, decode_each<BlockQ5_K>, encode_q5_k, kF16Largest * 63},
    {DType::kQ6_K, decode_each<BlockQ6_K>, encode_q6_k, kF16Largest * 127 * 31},
    {DType::kIQ1_S, decode_each<BlockIq1S>},
    {DType::kIQ1_M, decode_each<BlockIq1M>},
    {DType::kIQ2_XXS, decode_each<BlockIq2Xxs>},
    {DType::kIQ2_XS, decode_each<BlockIq2Xs>},
    {DType::kIQ2_S, decode_each<BlockIq2S>},
    {DType::kIQ3_XXS, decode_each<BlockIq3Xxs>},
    {DType::kIQ3_S, decode_each<BlockIq3S>},
    {DType::kIQ4_NL, decode_each<BlockIq4Nl>, encode_iq4_nl, kF16Largest * 113},
    {DType::kIQ4_XS, decode_each<BlockIq4Xs>, encode_iq4_xs, kF16Largest * 31 * 113},
    {DType::kTQ1_0, decode_each<BlockTq1_0>, encode_tq1_0, kF16Largest},
    {DType::kTQ2_0, decode_each<BlockTq2_0>, encode_tq2_0, kF16Largest},
    {DType::kMXFP4, decode_each<BlockMxfp4>, encode_mxfp4, 0x1.8p127f},
    {DType::kNVFP4, decode_each<BlockNvfp4>, encode_nvfp4, 2688},
    {DType::kQ1_0, decode_each<BlockQ1_0>, encode_q1_0, kF16Largest},
    {DType::kQ2_0, decode_each<BlockQ2_0>, encode_q2_0, kF16Largest},
    {DType::kNF4, decode_each<BlockNf4>, encode_nf4, kF32Largest},
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

bool can_encode(DType type) {
  const BlockCodec* codec = find_codec(type);
  return codec != nullptr && codec->encode != nullptr;
}

float largest_encodable(DType type) {
  TSR_CHECK(can_encode(type), "largest_encodable: the type has no encoder");
  return find_codec(type)->largest;
}

namespace {

Status check_values(const float* values, int64_t count, const BlockCodec& codec) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i];
    if (std::fabs(value) <= codec.largest) continue;  // false for NaN
    const std::string_view name = info(codec.type).name;
    const std::string found = format("value {} is {}", i, value);
    return Status(
        StatusCode::kInvalidArgument,
        std::isfinite(value)
            ? format("{}; {} holds magnitudes up to {}: scale the values, or keep them as f32 or bf16", found,
                     name, codec.largest)
            : format("{}; {} holds finite values: find out where it comes from", found, name));
  }
  return {};
}

Status check_importance(std::span<const float> importance) {
  for (size_t i = 0; i < importance.size(); ++i) {
    if (std::isfinite(importance[i]) && importance[i] >= 0.0f) continue;
    return Status(StatusCode::kInvalidArgument,
                  format("importance {} is {}; wanted a finite number, at least 0", i, importance[i]));
  }
  return {};
}

constexpr int64_t kMostElements = 256;  // of a block

// Scales weights so that the largest is 1, and keeps each above zero, so that every sum of them is.
void scale_weights(const float* importance, int64_t elements, float* weights) {
  constexpr float kLeast = 1e-9f;
  const float largest = *std::max_element(importance, importance + elements);
  for (int64_t i = 0; i < elements; ++i)
    weights[i] = largest > 0.0f ? std::max(importance[i] / largest, kLeast) : 1.0f;
}

}  // namespace

Status encode_blocks(DType type, const float* values, int64_t count, std::byte* out,
                     std::span<const float> importance) {
  const BlockCodec* codec = find_codec(type);
  if (codec == nullptr || codec->encode == nullptr) {
    return Status(
        StatusCode::kUnsupported,
        format("{} {}", to_text(type),
               codec == nullptr ? "holds no weights"
                                : "can be read and not made: choose another type, such as q2_k or q3_k"));
  }
  const DTypeInfo& layout = info(type);
  const int64_t elements = layout.block_elements;
  const auto columns = static_cast<int64_t>(importance.size());
  TSR_CHECK(count >= 0 && count % elements == 0, "encode_blocks: the count is not whole blocks");
  TSR_CHECK(columns == 0 || (columns % elements == 0 && count % columns == 0),
            "encode_blocks: importance is not for whole rows");
  TSR_RETURN_IF_ERROR(check_values(values, count, *codec));
  TSR_RETURN_IF_ERROR(check_importance(importance));
  float weights[kMostElements];
  std::fill_n(weights, kMostElements, 1.0f);
  for (int64_t first = 0; first < count; first += elements, out += layout.block_bytes) {
    if (columns > 0) scale_weights(importance.data() + first % columns, elements, weights);
    codec->encode(values + first, weights, out);
  }
  return {};
}

}  // namespace tessera
