// The 8-bit floats as bits (OCP 8-bit Floating Point Specification): e4m3, which has no infinities (E4M3FN:
// NaN is 0x7f and 0xff, the largest number 448), and e5m2 (as IEEE types; the largest number 57344).
// Conversion rounds to nearest, ties to even, and saturates: values beyond the largest number, infinities
// included, become it. NaN stays NaN.
//
// A tensor in them has one scale, a power of two: value = code * scale. So scaling rounds nothing, a product
// of the values is the product of the codes times both scales, and another scale changes only the values
// below the smallest normal number.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "graph/base/dtype.h"

namespace tessera {

struct Fp8Format {
  int mantissa_bits, bias;
  uint8_t largest, infinity, nan;  // codes; e4m3 has no infinity: NaN takes its place
  double largest_value;
};
inline constexpr Fp8Format kE4M3Format{3, 7, 0x7e, 0x7f, 0x7f, 448},
    kE5M2Format{2, 15, 0x7b, 0x7c, 0x7f, 57344};

inline constexpr bool is_fp8(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }
inline constexpr const Fp8Format& fp8_format(DType dtype) {
  return dtype == DType::kE4M3 ? kE4M3Format : kE5M2Format;
}

inline float f32_from_fp8(uint8_t code, const Fp8Format& format) {
  const uint32_t sign = uint32_t{code & 0x80u} << 24, magnitude = code & 0x7fu;
  const uint32_t exponent = magnitude >> format.mantissa_bits;
  const uint32_t fraction = magnitude & ((1u << format.mantissa_bits) - 1);
  if (magnitude > format.largest) {
    const bool infinite = magnitude == format.infinity && format.infinity != format.nan;
    return std::bit_cast<float>(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
  }
  if (exponent == 0) {  // subnormal or zero: exact in f32
    const float step =
        std::bit_cast<float>(static_cast<uint32_t>(128 - format.bias - format.mantissa_bits) << 23);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * step));
  }
  return std::bit_cast<float>(sign | (exponent + static_cast<uint32_t>(127 - format.bias)) << 23 |
                              fraction << (23 - format.mantissa_bits));
}

inline uint8_t fp8_from_f32(float value, const Fp8Format& format) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), absolute = bits & 0x7fffffff;
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  if (value != value) return sign | format.nan;
  const int shift = 23 - format.mantissa_bits;
  const auto exponent_shift = static_cast<uint32_t>(127 - format.bias);
  // Subnormal steps are even: adding a number whose last place is such a step rounds to them.
  if (absolute < (exponent_shift + 1) << 23) {
    const uint32_t magic = static_cast<uint32_t>(127 + 24 - format.bias - format.mantissa_bits) << 23;
    const float sum = std::bit_cast<float>(absolute) + std::bit_cast<float>(magic);
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(sum) - magic));
  }
  const uint32_t rounded = (absolute + (1u << (shift - 1)) - 1 + (absolute >> shift & 1)) >> shift;
  const uint32_t code = rounded - (exponent_shift << format.mantissa_bits);
  return static_cast<uint8_t>(sign | std::min<uint32_t>(code, format.largest));
}

// Rounds once: the intermediate f32 is rounded to odd, which keeps the side of every tie.
inline uint8_t fp8_from_f64(double value, const Fp8Format& format) {
  const auto near = static_cast<float>(value);
  if (static_cast<double>(near) == value || value != value) return fp8_from_f32(near, format);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;  // towards zero
  return fp8_from_f32(std::bit_cast<float>(bits | 1), format);
}

// The scale of a tensor whose largest magnitude is `amax`: the least power of two by which it fits. A
// magnitude that is not finite gives infinity, which makes every product of the tensor infinite or NaN. The
// scale never falls as amax grows, so the scale of a whole is the largest of its parts' scales. It is within
// 2^-126 to 2^126, where 1 / scale is normal too.
inline double fp8_scale(double amax, const Fp8Format& format) {
  constexpr int kLeast = -126, kMost = 126;
  if (!(amax <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
  if (amax == 0) return std::ldexp(1.0, kLeast);
  int exponent = 0, largest_exponent = 0;
  const double fraction = std::frexp(amax, &exponent);
  const double largest = std::frexp(format.largest_value, &largest_exponent);
  const int power = exponent - largest_exponent + (fraction > largest ? 1 : 0);
  return std::ldexp(1.0, std::clamp(power, kLeast, kMost));
}

}  // namespace tessera
