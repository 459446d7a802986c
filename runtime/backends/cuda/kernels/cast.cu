// cast. Casts between f32 and a type of 16 bits, which a mixed-precision step makes of every parameter, go 16
// bytes at a time. Consecutive ones are one launch.
#include <type_traits>

#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map_many.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
constexpr bool kIsFloat = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                          std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

// Saturates at the ends of the range; NaN becomes 0.
template <class To, class From>
__device__ To convert(From x) {
  if constexpr (kIsFloat<To>) {
    if constexpr (std::is_same_v<To, __half> && (std::is_same_v<From, double> || std::is_integral_v<From>))
      return __double2half(static_cast<double>(x));  // rounded once, not twice through f32
    else if constexpr (std::is_same_v<To, __nv_bfloat16> &&
                       (std::is_same_v<From, double> || std::is_integral_v<From>))
      return __double2bfloat16(static_cast<double>(x));
    else if constexpr (std::is_same_v<From, __half> || std::is_same_v<From, __nv_bfloat16>)
      return narrow<To>(static_cast<Wide<To>>(widen(x)));
    else
      return narrow<To>(static_cast<Wide<To>>(x));
  } else if constexpr (kIsFloat<From>) {
    const auto wide = widen(x);
    using W = decltype(wide + wide);
    if (wide != wide) return To(0);
    if (wide <= static_cast<W>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    // max() of a wide integer rounds up, to a value that is out of range already.
    if (wide >= static_cast<W>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(wide);
  } else {
    const auto value = static_cast<int64_t>(x);
    if (value < static_cast<int64_t>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value > static_cast<int64_t>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  }
}

template <class To, class From>
struct Cast {
  const From* x;
  To* y;
  __device__ void operator()(int64_t i) const { y[i] = convert<To>(x[i]); }
};

// One object for every tensor, since it has no state.
struct CastOfMany : SameValue {
  struct Own {};
  bool operator==(const CastOfMany&) const { return true; }
  void bind(const LaunchArgs&) {}
  __host__ __device__ void take(const Own&) {}
};
template <class T>
constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

template <class To, class From>
std::unique_ptr<Kernel> cast(int64_t count) {
  if constexpr (kIsHalf<To> && std::is_same_v<From, float>)
    return std::make_unique<MapOfMany<To, 0, 1, 1, 0, CastOfMany>>(count, CastOfMany{});
  else if constexpr (kIsHalf<From> && std::is_same_v<To, float>)
    return std::make_unique<MapOfMany<From, 1, 0, 0, 1, CastOfMany>>(count, CastOfMany{});
  else
    return make_kernel([count](const LaunchArgs& args) {
      launch_each(args.stream, count, Cast<To, From>{args.in<From>(0), args.out<To>(0)});
    });
}

template <class F>
Result<PreparedKernel> dispatch_plain(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(float{});
#ifndef TSR_FEW_TYPES
    case DType::kF64: return f(double{});
    case DType::kF16: return f(__half{});
#endif
    case DType::kBF16: return f(__nv_bfloat16{});
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
      return memory_bound(spec, cast<decltype(to), decltype(from)>(spec.output_elements(0)));
    });
  });
}

}  // namespace tessera::cuda
