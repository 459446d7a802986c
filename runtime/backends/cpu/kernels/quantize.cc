#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "graph/base/fp8.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

namespace {

Result<Fp8Format> format_of(const KernelSpec& spec) {
  const std::optional<DType> dtype = dtype_from_name(spec.string("dtype"));
  if (!dtype || !is_fp8(*dtype))
    return Status(StatusCode::kUnsupported, format("{}: dtype '{}'", spec.op(), spec.string("dtype")));
  return fp8_format(*dtype);
}

}  // namespace

// Maxima stand in the workspace, one a task. Numbers that are not finite give infinity, in any order.
Result<PreparedKernel> prepare_quantize_scale(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const Fp8Format format, format_of(spec));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.input_elements(0);
    PreparedKernel prepared = reference_kernel(
        spec, static_cast<double>(count), make_kernel([count, format](const LaunchArgs& args) {
          const T* x = args.in<T>(0);
          auto* largest = static_cast<double*>(args.workspace);
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            T amax = 0;
            bool finite = true;
            for (int64_t i = begin; i < end; ++i) {
              const T magnitude = std::fabs(x[i]);
              finite = finite && magnitude <= std::numeric_limits<T>::max();
              amax = std::max(amax, magnitude);
            }
            largest[begin / kElementGrain] =
                finite ? static_cast<double>(amax) : std::numeric_limits<double>::infinity();
          });
          double amax = 0;
          for (int64_t task = 0; task * kElementGrain < count; ++task) amax = std::max(amax, largest[task]);
          *args.out<T>(0) = static_cast<T>(fp8_scale(amax, format));
        }));
    prepared.workspace_bytes =
        static_cast<int64_t>(sizeof(double)) * ((count + kElementGrain - 1) / kElementGrain);
    return prepared;
  });
}

// The scale is a power of two, so multiplying by its inverse rounds nothing.
Result<PreparedKernel> prepare_quantize(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const Fp8Format format, format_of(spec));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    return reference_kernel(
        spec, 2 * static_cast<double>(count), make_kernel([count, format](const LaunchArgs& args) {
          const T *x = args.in<T>(0), inverse = 1 / *args.in<T>(1);
          auto* codes = args.out<uint8_t>(0);
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              if constexpr (std::is_same_v<T, float>)
                codes[i] = fp8_from_f32(x[i] * inverse, format);
              else
                codes[i] = fp8_from_f64(x[i] * inverse, format);
          });
        }));
  });
}

}  // namespace tessera::cpu
