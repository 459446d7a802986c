#include <cmath>
#include <cstring>
#include <limits>

#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/bf16_rows.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

namespace {

// A 16-bit float by its number of mantissa bits; the other bits are sign and exponent.
template <int kMantissa>
struct Half {
  static constexpr int kBias = (1 << (14 - kMantissa)) - 1;
  uint16_t bits;

  double value() const {
    // bf16 has a path of its own: every decoding step reads weights through it.
    if constexpr (kMantissa == 7) return static_cast<double>(f32_from_bf16(bits));
    const int exponent = (bits & 0x7fff) >> kMantissa, mantissa = bits & ((1 << kMantissa) - 1);
    double magnitude;
    if (exponent == 2 * kBias + 1)
      magnitude =
          mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
      magnitude = std::ldexp(mantissa, 1 - kBias - kMantissa);
    else
      magnitude = std::ldexp(mantissa + (1 << kMantissa), exponent - kBias - kMantissa);
    return bits & 0x8000 ? -magnitude : magnitude;
  }

  // Nearest, ties to even. A mantissa that rounds up to the next power of two carries into the exponent by
  // itself.
  static Half nearest(double x) {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    constexpr uint16_t kInfinity = (2 * kBias + 1) << kMantissa;
    const double magnitude = std::fabs(x);
    if (std::isnan(x)) return {static_cast<uint16_t>(sign | kInfinity | 1 << (kMantissa - 1))};
    if (magnitude < std::ldexp(1, 1 - kBias)) {
      const auto steps = static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, kBias - 1 + kMantissa)));
      return {static_cast<uint16_t>(sign | steps)};
    }
    if (magnitude >= std::ldexp(1, kBias + 1)) return {static_cast<uint16_t>(sign | kInfinity)};
    const int exponent = std::ilogb(magnitude);
    const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(magnitude, kMantissa - exponent)));
    return {static_cast<uint16_t>(sign | (((exponent + kBias) << kMantissa) + mantissa - (1 << kMantissa)))};
  }
};
using F16 = Half<10>;
using BF16 = Half<7>;

template <class To, class From>
To integer_from(From x) {
  using Limits = std::numeric_limits<To>;
  if constexpr (std::is_floating_point_v<From>) {
    if (std::isnan(x)) return 0;
    if (x <= static_cast<From>(Limits::min())) return Limits::min();
    // max() of a 64-bit integer rounds up as a double, to a value that is out of range already.
    if (x >= static_cast<From>(Limits::max())) return Limits::max();
    return static_cast<To>(x);
  } else {
    if (std::cmp_less(x, Limits::min())) return Limits::min();
    if (std::cmp_greater(x, Limits::max())) return Limits::max();
    return static_cast<To>(x);
  }
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_class_v<From>)
    return convert<To>(x.value());
  else if constexpr (std::is_class_v<To>)
    return To::nearest(static_cast<double>(x));
  else if constexpr (std::is_floating_point_v<To>)
    return static_cast<To>(x);
  else
    return integer_from<To>(x);
}

template <class To, class From>
void convert_all(const From* x, To* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = convert<To>(x[i]);
}
// Training in bf16 casts every weight in every step.
void convert_all(const float* x, BF16* y, int64_t count) { round_to_bf16(x, &y->bits, count); }
void convert_all(const BF16* x, float* y, int64_t count) { widen_bf16(&x->bits, y, count); }

template <class F>
Result<PreparedKernel> dispatch_plain(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(float{});
    case DType::kF64: return f(double{});
    case DType::kF16: return f(F16{});
    case DType::kBF16: return f(BF16{});
    case DType::kI32: return f(int32_t{});
    case DType::kI64: return f(int64_t{});
    case DType::kI8: return f(int8_t{});
    case DType::kU8: return f(uint8_t{});
    default: return Status(StatusCode::kUnsupported, format("cast: dtype {} has blocks", to_text(dtype)));
  }
}

}  // namespace

Result<PreparedKernel> prepare_cast(const KernelSpec& spec) {
  return dispatch_plain(spec.input_dtype(0), [&](auto from) {
    return dispatch_plain(spec.output_dtype(0), [&](auto to) -> Result<PreparedKernel> {
      using From = decltype(from);
      using To = decltype(to);
      const int64_t count = spec.output_elements(0);
      return reference_kernel(spec, static_cast<double>(count), make_kernel([count](const LaunchArgs& args) {
                                const From* x = args.in<From>(0);
                                To* y = args.out<To>(0);
                                args.pool.parallel_ranges(count, kElementGrain,
                                                          [&](int64_t begin, int64_t end) {
                                                            convert_all(x + begin, y + begin, end - begin);
                                                          });
                              }));
    });
  });
}

}  // namespace tessera::cpu
