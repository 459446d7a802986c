#include "tests/ops/array.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/status.h"

namespace tessera::conformance {

namespace {

template <class T>
double load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

template <class T>
void store(std::byte* to, double value) {
  const T converted = static_cast<T>(value);
  std::memcpy(to, &converted, sizeof converted);
}

double from_bits(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                               : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  if (exponent == 2 * bias + 1)
    value = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  return bits & 0x8000 ? -value : value;
}

// Rounded to nearest, ties to even.
uint16_t to_bits(double value, int mantissa_bits, int bias) {
  const int top = 2 * bias + 1;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return static_cast<uint16_t>(top << mantissa_bits | 1);
  const double size = std::fabs(value);
  if (size == 0) return sign;
  int exponent = std::isinf(size) ? top : std::max(std::ilogb(size) + bias, 1);
  const double scaled =
      exponent >= top ? 0 : std::nearbyint(std::ldexp(size, mantissa_bits + bias - exponent));
  // A denormal has no leading one, and a mantissa that rounds up carries into the exponent: the sum does
  // both.
  const int64_t bits = exponent >= top
                           ? int64_t{top} << mantissa_bits
                           : (int64_t{exponent - 1} << mantissa_bits) + static_cast<int64_t>(scaled);
  return static_cast<uint16_t>(sign | std::min(bits, int64_t{top} << mantissa_bits));
}

// The number that a code of 8 bits stands for; and the code of the nearest number, of two the even one, found
// by looking at all of them.
double from_code(uint8_t code, DType dtype) {
  const bool e4m3 = dtype == DType::kE4M3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, magnitude = code & 0x7f;
  const int exponent = magnitude >> mantissa_bits, mantissa = magnitude & ((1 << mantissa_bits) - 1);
  double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                               : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  if (magnitude == 0x7f || (!e4m3 && magnitude > 0x7c)) value = std::numeric_limits<double>::quiet_NaN();
  if (!e4m3 && magnitude == 0x7c) value = std::numeric_limits<double>::infinity();
  return code & 0x80 ? -value : value;
}
uint8_t nearest_code(double value, DType dtype) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  int best = 0;
  for (int code = 1; code < 0x80; ++code) {
    const double candidate = from_code(static_cast<uint8_t>(code), dtype);
    if (!std::isfinite(candidate)) break;
    const double here = std::fabs(std::fabs(value) - candidate),
                 before = std::fabs(std::fabs(value) - from_code(static_cast<uint8_t>(best), dtype));
    if (std::isinf(value) || here < before || (here == before && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(sign | best);
}

uint16_t bits_at(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

}  // namespace

Array Array::zeros(const TensorType& type) {
  return {type, std::vector<std::byte>(static_cast<size_t>(tessera::bytes(type)))};
}

Array Array::of(const TensorType& type, const std::vector<double>& values) {
  Array array = zeros(type);
  TSR_CHECK(static_cast<int64_t>(values.size()) == array.count(), "one value an element");
  if (is_block_type(type.dtype)) {
    const std::vector<float> numbers(values.begin(), values.end());
    const Status encoded = encode_blocks(type.dtype, numbers.data(), array.count(), array.bytes.data());
    TSR_CHECK(encoded.ok(), "tests give block types values that can be encoded");
    return array;
  }
  for (size_t i = 0; i < values.size(); ++i) array.set(static_cast<int64_t>(i), values[i]);
  return array;
}

Array Array::part(const TensorType& part_type, const std::vector<int64_t>& elements) const {
  Array array = zeros(part_type);
  const auto block = static_cast<size_t>(info(type.dtype).block_elements),
             size = static_cast<size_t>(info(type.dtype).block_bytes);
  for (size_t i = 0; i < elements.size(); i += block)
    std::memcpy(array.bytes.data() + i / block * size,
                bytes.data() + static_cast<size_t>(elements[i]) / block * size, size);
  return array;
}

double Array::get(int64_t i) const {
  if (is_block_type(type.dtype)) {
    const int64_t block = info(type.dtype).block_elements;
    std::vector<float> numbers(static_cast<size_t>(block));
    decode_blocks(type.dtype, bytes.data() + i / block * info(type.dtype).block_bytes, numbers.data(), block);
    return numbers[static_cast<size_t>(i % block)];
  }
  const std::byte* at = bytes.data() + i * info(type.dtype).block_bytes;
  switch (type.dtype) {
    case DType::kF32: return load<float>(at);
    case DType::kF64: return load<double>(at);
    case DType::kI32: return load<int32_t>(at);
    case DType::kI64: return load<int64_t>(at);
    case DType::kI8: return load<int8_t>(at);
    case DType::kU8: return load<uint8_t>(at);
    case DType::kF16: return from_bits(bits_at(at), 10, 15);
    case DType::kBF16: return from_bits(bits_at(at), 7, 127);
    case DType::kE4M3:
    case DType::kE5M2: return from_code(static_cast<uint8_t>(*at), type.dtype);
    default: break;
  }
  throw InternalError(__FILE__, __LINE__, "tests read plain elements only");
}

void Array::set(int64_t i, double value) {
  std::byte* at = bytes.data() + i * info(type.dtype).block_bytes;
  switch (type.dtype) {
    case DType::kF32: return store<float>(at, value);
    case DType::kF64: return store<double>(at, value);
    case DType::kI32: return store<int32_t>(at, value);
    case DType::kI64: return store<int64_t>(at, value);
    case DType::kI8: return store<int8_t>(at, value);
    case DType::kU8: return store<uint8_t>(at, value);
    case DType::kF16:
    case DType::kBF16: {
      const uint16_t bits = type.dtype == DType::kF16 ? to_bits(value, 10, 15) : to_bits(value, 7, 127);
      std::memcpy(at, &bits, sizeof bits);
      return;
    }
    case DType::kE4M3:
    case DType::kE5M2: *at = static_cast<std::byte>(nearest_code(value, type.dtype)); return;
    default: break;
  }
  throw InternalError(__FILE__, __LINE__, "tests write plain elements only");
}

std::vector<double> Array::values() const {
  std::vector<double> values(static_cast<size_t>(count()));
  for (int64_t i = 0; i < count(); ++i) values[static_cast<size_t>(i)] = get(i);
  return values;
}

bool near(double got, double want, double tolerance) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (std::isinf(got) || std::isinf(want)) return got == want;
  return std::fabs(got - want) <= tolerance * std::max(1.0, std::fabs(want));
}

}  // namespace tessera::conformance
