// Values of parameters: narrow ones widened to f32, f32 ones rounded to the type in which a graph stores
// them.
#include <algorithm>
#include <cmath>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/half.h"
#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

namespace {

Status not_storable(float value) {
  return Status(
      StatusCode::kInvalidArgument,
      format("a weight is {}: numbers in groups with an f16 scale are finite and below 65504 times the "
             "largest integer",
             static_cast<double>(value)));
}

// Stores `count` numbers with one scale: i8 symmetric around 0. Returns the scale as it is stored.
Result<uint16_t> store_int8(const float* from, int64_t count, int8_t* to) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(from[i])) return not_storable(from[i]);
    largest = std::max(largest, std::fabs(from[i]));
  }
  const uint16_t bits = f16_from_f32(largest / 127);
  const float scale = f32_from_f16(bits);
  if (!std::isfinite(scale)) return not_storable(largest);
  for (int64_t i = 0; i < count; ++i) {
    const float number = scale == 0 ? 0 : std::nearbyint(from[i] / scale);
    to[i] = static_cast<int8_t>(std::clamp(number, -127.0f, 127.0f));
  }
  return bits;
}

// Stores 4-bit numbers. The one furthest from 0 becomes -8 exactly, so the scale may be negative and all 16
// values are used.
Result<uint16_t> store_int4(const float* from, int64_t count, uint8_t* to) {
  float furthest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(from[i])) return not_storable(from[i]);
    if (std::fabs(from[i]) > std::fabs(furthest)) furthest = from[i];
  }
  const uint16_t bits = f16_from_f32(furthest / -8);
  const float scale = f32_from_f16(bits);
  if (!std::isfinite(scale)) return not_storable(furthest);
  const auto number = [&](int64_t i) {
    const float steps = scale == 0 ? 0 : std::nearbyint(from[i] / scale);
    return static_cast<uint8_t>(std::clamp(steps, -8.0f, 7.0f) + 8);
  };
  for (int64_t unit = 0; unit < count; unit += 32)
    for (int64_t i = 0; i < 16; ++i)
      to[unit / 2 + i] = static_cast<uint8_t>(number(unit + i) | number(unit + 16 + i) << 4);
  return bits;
}

}  // namespace

Result<HostTensor> widen_weight(const HostTensor& value) {
  const DType stored = value.type.dtype;
  if (stored == DType::kF32) return value;
  if (!can_decode(stored))
    return Status(StatusCode::kInvalidArgument,
                  format("a weight {} is no f32: wanted a float or a block type", to_text(value.type)));
  std::span<std::byte> bytes;
  HostTensor wide = HostTensor::zeros({DType::kF32, value.type.shape}, &bytes);
  decode_blocks(stored, value.data.data(), reinterpret_cast<float*>(bytes.data()),
                value.type.shape.elements());
  return wide;
}

Result<StoredWeight> quantize_weight(const HostTensor& value, const TensorType& numbers,
                                     const TensorType* scales) {
  if (value.type.dtype != DType::kF32 && value.type.dtype != DType::kF64) {
    TSR_ASSIGN_OR_RETURN(HostTensor wide, widen_weight(value));
    if (wide.type == numbers) return StoredWeight{std::move(wide), std::nullopt};
    return quantize_weight(wide, numbers, scales);
  }
  const bool packed = numbers.dtype == DType::kU8;
  const int64_t count = value.type.dtype == DType::kF32 ? value.type.shape.elements() : -1;
  if (count < 0 || count != numbers.shape.elements() * (packed ? 2 : 1))
    return Status(StatusCode::kInvalidArgument,
                  format("a weight {} cannot be stored as {}", to_text(value.type), to_text(numbers)));
  const float* from = value.as<float>().data();
  std::span<std::byte> bytes;
  StoredWeight stored{HostTensor::zeros(numbers, &bytes), std::nullopt};
  if (is_half_type(numbers.dtype)) {
    auto* to = reinterpret_cast<uint16_t*>(bytes.data());
    const bool brain = numbers.dtype == DType::kBF16;
    for (int64_t i = 0; i < count; ++i) to[i] = brain ? bf16_from_f32(from[i]) : f16_from_f32(from[i]);
    return stored;
  }
  if (scales == nullptr || (numbers.dtype != DType::kI8 && !packed))
    return Status(StatusCode::kInvalidArgument, format("a weight {} cannot be stored as {} without scales",
                                                       to_text(value.type), to_text(numbers)));
  std::span<std::byte> scale_bytes;
  stored.scales = HostTensor::zeros(*scales, &scale_bytes);
  auto* scale = reinterpret_cast<uint16_t*>(scale_bytes.data());
  const int64_t groups = scales->shape.elements(), group = groups == 0 ? 0 : count / groups;
  for (int64_t g = 0; g < groups; ++g) {
    std::byte* to = bytes.data() + (packed ? g * group / 2 : g * group);
    TSR_ASSIGN_OR_RETURN(scale[g], packed
                                       ? store_int4(from + g * group, group, reinterpret_cast<uint8_t*>(to))
                                       : store_int8(from + g * group, group, reinterpret_cast<int8_t*>(to)));
  }
  return stored;
}

}  // namespace tessera
