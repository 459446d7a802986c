// TF32: an f32 number with 10 bits of mantissa instead of 23, as tensor cores of NVIDIA's GPUs multiply it
// (compute capability 8.0 and later). Products of two such numbers are exact in f32, except for its range.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

// Rounds to nearest, ties to even: the relative error is at most 2^-11. Infinities and NaN stay; values that
// are too large become infinite.
inline float tf32_from_f32(float x) {
  constexpr uint32_t kDropped = 13, kExponent = 0x7f800000;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t half = (uint32_t{1} << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  const uint32_t rounded = (bits + half) & ~((uint32_t{1} << kDropped) - 1);
  return std::bit_cast<float>((bits & kExponent) == kExponent ? bits : rounded);
}

}  // namespace tessera
