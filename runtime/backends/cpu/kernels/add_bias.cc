#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

// x [..., N], b [N] -> y [..., N]
Result<PreparedKernel> prepare_add_bias(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0), width = spec.input_elements(1);
    return reference_kernel(
        spec, static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
          const T *x = args.in<T>(0), *b = args.in<T>(1);
          T* y = args.out<T>(0);
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            int64_t n = begin % width;
            for (int64_t i = begin; i < end; ++i) {
              y[i] = static_cast<T>(static_cast<double>(x[i]) + static_cast<double>(b[n]));
              if (++n == width) n = 0;
            }
          });
        }));
  });
}

}  // namespace tessera::cpu
