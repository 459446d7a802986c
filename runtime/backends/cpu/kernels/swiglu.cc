#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_swiglu(const KernelSpec& spec) {
  return map_binary(spec, 9, [](double gate, double up) { return silu(gate) * up; });
}

// gate, up, dy -> dgate, dup
Result<PreparedKernel> prepare_swiglu_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    return reference_kernel(
        spec, 15 * static_cast<double>(count), make_kernel([count](const LaunchArgs& args) {
          const T *gate = args.in<T>(0), *up = args.in<T>(1), *dy = args.in<T>(2);
          T *dgate = args.out<T>(0), *dup = args.out<T>(1);
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const double g = static_cast<double>(gate[i]), u = static_cast<double>(up[i]);
              const double d = static_cast<double>(dy[i]);
              dgate[i] = static_cast<T>(d * u * silu_derivative(g));
              dup[i] = static_cast<T>(d * silu(g));
            }
          });
        }));
  });
}

}  // namespace tessera::cpu
