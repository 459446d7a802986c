#include <cmath>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/log_functions.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_exp(const KernelSpec& spec) {
  return map_unary(spec, 5, [](double x) { return std::exp(x); });
}
Result<PreparedKernel> prepare_log(const KernelSpec& spec) {
  return map_unary(spec, 5, [](double x) { return std::log(x); });
}
// Both without overflow, and exact where the result is small.
Result<PreparedKernel> prepare_softplus(const KernelSpec& spec) {
  return map_unary(spec, 10, [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); });
}
Result<PreparedKernel> prepare_log1mexp(const KernelSpec& spec) {
  constexpr double kLog2 = 0.69314718055994530942;
  return map_unary(spec, 10,
                   [](double x) { return x > -kLog2 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x)); });
}
Result<PreparedKernel> prepare_sqrt(const KernelSpec& spec) {
  return map_unary(spec, 4, [](double x) { return std::sqrt(x); });
}
Result<PreparedKernel> prepare_square(const KernelSpec& spec) {
  return map_unary(spec, 1, [](double x) { return x * x; });
}
Result<PreparedKernel> prepare_neg(const KernelSpec& spec) {
  return map_unary(spec, 1, [](double x) { return -x; });
}
Result<PreparedKernel> prepare_scale(const KernelSpec& spec) {
  return map_unary(spec, 1, [factor = spec.f64("factor")](double x) { return x * factor; });
}

// x [...], s [] -> y [...]
Result<PreparedKernel> prepare_scale_by(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    return reference_kernel(spec, static_cast<double>(count), make_kernel([count](const LaunchArgs& args) {
                              const T* x = args.in<T>(0);
                              const double s = static_cast<double>(*args.in<T>(1));
                              T* y = args.out<T>(0);
                              args.pool.parallel_ranges(
                                  count, kElementGrain, [&](int64_t begin, int64_t end) {
                                    for (int64_t i = begin; i < end; ++i)
                                      y[i] = static_cast<T>(static_cast<double>(x[i]) * s);
                                  });
                            }));
  });
}

}  // namespace tessera::cpu
