#include "graph/base/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "graph/base/dtype.h"

namespace tessera {

namespace {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

float widen(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

float widen(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1f, mantissa = value.bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(mantissa), -24)));
}

// Round to nearest, ties to even; a NaN stays one.
BFloat16 round_to(float value, BFloat16) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

Float16 round_to(float value, Float16) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000,
                 magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff))};
  if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds to 65536 or more
  if (magnitude < 0x38800000) {
    // Subnormal: the mantissa in units of 2^-24, rounded by the default mode of nearbyint.
    const float units = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
    return {static_cast<uint16_t>(sign | static_cast<uint32_t>(units))};
  }
  const uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

template <class T>
Wide<T> load(T value) {
  if constexpr (kIsHalf<T>)
    return widen(value);
  else
    return value;
}

struct Sum {
  template <class W>
  static W apply(W a, W b) {
    // Integer sums wrap, as they do on every device.
    if constexpr (std::is_integral_v<W>) {
      using U = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
// A NaN on either side wins, so that it is not lost behind a finite maximum.
struct Max {
  template <class W>
  static W apply(W a, W b) {
    return (b > a || b != b) ? b : a;
  }
};

template <class T, class Op>
void reduce(const ReduceArgs& args) {
  constexpr int64_t kBlock = 1024;  // accumulators stay in the first-level cache
  Wide<T> sums[kBlock];
  T rounded_sums[kBlock];
  for (int64_t at = 0; at < args.count; at += kBlock) {
    const int64_t count = std::min(kBlock, args.count - at);
    const auto input = [&](int32_t member) { return static_cast<const T*>(args.in[member]) + args.in_begin + at; };
    const T* const first = input(0);
    const T* const second = input(std::min(1, args.in_count - 1));
    if (args.in_count == 1)
      for (int64_t i = 0; i < count; ++i) sums[i] = load(first[i]);
    else
      for (int64_t i = 0; i < count; ++i) sums[i] = Op::apply(load(first[i]), load(second[i]));
    for (int32_t member = 2; member < args.in_count; ++member) {
      const T* addend = input(member);
      for (int64_t i = 0; i < count; ++i) sums[i] = Op::apply(sums[i], load(addend[i]));
    }
    const void* result = sums;
    if constexpr (kIsHalf<T>) {
      for (int64_t i = 0; i < count; ++i) rounded_sums[i] = round_to(sums[i], T{});
      result = rounded_sums;
    }
    for (int32_t member = 0; member < args.out_count; ++member)
      std::memcpy(static_cast<T*>(args.out[member]) + args.out_begin + at, result,
                  static_cast<size_t>(count) * sizeof(T));
  }
}

struct Row {
  DType dtype;
  ReduceFn sum, max;
};
template <class T>
constexpr Row row(DType dtype) {
  return {dtype, reduce<T, Sum>, reduce<T, Max>};
}

constexpr Row kRows[] = {row<float>(DType::kF32),     row<double>(DType::kF64),  row<Float16>(DType::kF16),
                         row<BFloat16>(DType::kBF16), row<int32_t>(DType::kI32), row<int64_t>(DType::kI64)};

}  // namespace

ReduceFn find_reduce(int32_t dtype, int32_t reduce) {
  for (const Row& row : kRows)
    if (static_cast<int32_t>(row.dtype) == dtype)
      return reduce == 0 ? row.sum : reduce == 1 ? row.max : nullptr;
  return nullptr;
}

}  // namespace tessera
