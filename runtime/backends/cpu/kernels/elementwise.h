// Reference kernels over elements: y[i] = f(x0[i], x1[i], ...), computed in double. An element is read before
// it is written, so kernels work in place too.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

inline constexpr int64_t kElementGrain = 16384;  // elements a task

// Bytes of all operands, without operand `skipped`, of which only the shape is used.
inline double operand_bytes(const KernelSpec& spec, int skipped = -1) {
  double total = 0;
  for (int i = 0; i < spec.input_count(); ++i)
    if (i != skipped) total += static_cast<double>(dtype_bytes(spec.input_dtype(i), spec.input_elements(i)));
  for (int i = 0; i < spec.output_count(); ++i)
    total += static_cast<double>(dtype_bytes(spec.output_dtype(i), spec.output_elements(i)));
  return total;
}

// Plain loops reach a small part of the peak.
inline PreparedKernel reference_kernel(const KernelSpec& spec, double flops, std::unique_ptr<Kernel> kernel) {
  return {.kernel = std::move(kernel),
          .workspace_bytes = 0,
          .flops = flops,
          .bytes = operand_bytes(spec),
          .efficiency = 0.05};
}

// y = f(x)
template <class F>
Result<PreparedKernel> map_unary(const KernelSpec& spec, double flops_per_element, F f) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    return reference_kernel(
        spec, flops_per_element * static_cast<double>(count), make_kernel([count, f](const LaunchArgs& args) {
          const T* x = args.in<T>(0);
          T* y = args.out<T>(0);
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(f(static_cast<double>(x[i])));
          });
        }));
  });
}

// z = f(x, y)
template <class F>
Result<PreparedKernel> map_binary(const KernelSpec& spec, double flops_per_element, F f) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    return reference_kernel(
        spec, flops_per_element * static_cast<double>(count), make_kernel([count, f](const LaunchArgs& args) {
          const T *x = args.in<T>(0), *y = args.in<T>(1);
          T* z = args.out<T>(0);
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              z[i] = static_cast<T>(f(static_cast<double>(x[i]), static_cast<double>(y[i])));
          });
        }));
  });
}

}  // namespace tessera::cpu
