// The 16-bit floats as bits: f16 (IEEE binary16) and bf16 (the upper half of an f32). Conversion rounds to
// nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

constexpr float f32_from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

constexpr uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

constexpr float f32_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal or zero: exact in f32
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr uint16_t f16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (value != value) return static_cast<uint16_t>(sign | 0x7e00);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
  // Subnormal steps are 2^-24: adding a number whose last place is that rounds to them.
  if (magnitude < 0x1p-14f) {
    const uint32_t steps = std::bit_cast<uint32_t>(magnitude + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    return static_cast<uint16_t>(sign | steps);
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

}  // namespace tessera
