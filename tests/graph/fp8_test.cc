#include "graph/base/fp8.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tessera {
namespace {

// By the definition of the formats: sign, exponent, mantissa.
double number(int code, const Fp8Format& format) {
  const int magnitude = code & 0x7f, exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits)
                                     : std::ldexp(mantissa + (1 << format.mantissa_bits),
                                                  exponent - format.bias - format.mantissa_bits);
  return code & 0x80 ? -value : value;
}

// The code of the nearest number, of two the even one: by looking at all of them.
int nearest(double value, const Fp8Format& format) {
  const int sign = std::signbit(value) ? 0x80 : 0;
  int best = 0;
  for (int code = 1; code <= format.largest; ++code) {
    const double here = std::fabs(std::fabs(value) - number(code, format)),
                 before = std::fabs(std::fabs(value) - number(best, format));
    if (here < before || (here == before && code % 2 == 0)) best = code;
  }
  return sign | best;
}

TEST_CASE("every_code_of_8_bits_is_the_number_of_its_definition_and_comes_back") {
  for (const Fp8Format* format : {&kE4M3Format, &kE5M2Format})
    for (int code = 0; code < 256; ++code) {
      CAPTURE(code);
      const float value = f32_from_fp8(static_cast<uint8_t>(code), *format);
      const int magnitude = code & 0x7f;
      if (magnitude > format->largest) {
        const bool infinite = format == &kE5M2Format && magnitude == 0x7c;
        CHECK(std::isinf(value) == infinite);
        CHECK(std::isnan(value) != infinite);
        continue;
      }
      CHECK(value == number(code, *format));
      CHECK(std::signbit(value) == (code >= 0x80));
      CHECK(fp8_from_f32(value, *format) == code);
      CHECK(fp8_from_f64(value, *format) == code);
    }
  CHECK(number(kE4M3Format.largest, kE4M3Format) == kE4M3Format.largest_value);
  CHECK(number(kE5M2Format.largest, kE5M2Format) == kE5M2Format.largest_value);
}

TEST_CASE("numbers_between_two_codes_go_to_the_nearer_and_ties_to_the_even_one") {
  for (const Fp8Format* format : {&kE4M3Format, &kE5M2Format})
    for (int code = 0; code < format->largest; ++code) {
      CAPTURE(code);
      const double low = number(code, *format), high = number(code + 1, *format), middle = (low + high) / 2;
      for (const double sign : {1.0, -1.0}) {
        const auto check = [&](double value, int wanted) {
          const int signed_code = wanted | (sign < 0 ? 0x80 : 0);
          CHECK(fp8_from_f64(sign * value, *format) == signed_code);
          const auto as_f32 = static_cast<float>(value);
          if (static_cast<double>(as_f32) == value)
            CHECK(fp8_from_f32(static_cast<float>(sign) * as_f32, *format) == signed_code);
        };
        check(middle, code % 2 == 0 ? code : code + 1);
        check(static_cast<double>(std::nextafter(static_cast<float>(middle), 0.0f)), code);
        check(static_cast<double>(std::nextafter(static_cast<float>(middle), 1e9f)), code + 1);
        // Nearer to the tie than f32 can say: by way of a rounded f32 these would go the wrong way.
        check(std::nextafter(middle, 0.0), code);
        check(std::nextafter(middle, 1e9), code + 1);
      }
    }
}

TEST_CASE("numbers_at_random_go_where_a_search_of_all_codes_goes") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-24, 18), fraction(-2, 2);
  for (const Fp8Format* format : {&kE4M3Format, &kE5M2Format})
    for (int i = 0; i < 20000; ++i) {
      const double value = fraction(random) * std::exp2(exponent(random));
      const auto as_f32 = static_cast<float>(value);
      CHECK(fp8_from_f64(value, *format) == nearest(value, *format));
      CHECK(fp8_from_f32(as_f32, *format) == nearest(as_f32, *format));
    }
}

TEST_CASE("what_is_too_large_becomes_the_largest_number_and_nan_stays_nan") {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (const Fp8Format* format : {&kE4M3Format, &kE5M2Format}) {
    for (const double value : {format->largest_value, format->largest_value * 1.01, format->largest_value * 2,
                               1e38, 1e300, static_cast<double>(infinity)}) {
      CAPTURE(value);
      CHECK(fp8_from_f64(value, *format) == format->largest);
      CHECK(fp8_from_f64(-value, *format) == (format->largest | 0x80));
      CHECK(fp8_from_f32(static_cast<float>(value), *format) == format->largest);
    }
    CHECK(std::isnan(f32_from_fp8(fp8_from_f32(nan, *format), *format)));
    CHECK(std::isnan(f32_from_fp8(fp8_from_f64(nan, *format), *format)));
    CHECK(fp8_from_f64(1e-300, *format) == 0);
    CHECK(fp8_from_f64(-1e-300, *format) == 0x80);
  }
}

TEST_CASE("a_scale_is_the_least_power_of_two_by_which_the_largest_number_fits_and_never_falls") {
  for (const Fp8Format* format : {&kE4M3Format, &kE5M2Format}) {
    double last = 0;
    for (double amax = 1e-37; amax < 1e38; amax *= 1.07) {
      const double scale = fp8_scale(amax, *format);
      CAPTURE(amax);
      CHECK(std::exp2(std::round(std::log2(scale))) == scale);
      CHECK(amax / scale <= format->largest_value);
      CHECK((scale == std::exp2(-126) || amax / (scale / 2) > format->largest_value));
      CHECK(scale >= last);
      last = scale;
    }
    CHECK(fp8_scale(format->largest_value, *format) == 1);
    CHECK(fp8_scale(std::nextafter(format->largest_value, 1e9), *format) == 2);
    CHECK(fp8_scale(0, *format) == std::exp2(-126));
    CHECK(std::isinf(fp8_scale(std::numeric_limits<double>::infinity(), *format)));
    CHECK(std::isinf(fp8_scale(std::numeric_limits<double>::quiet_NaN(), *format)));
  }
}

}  // namespace
}  // namespace tessera
