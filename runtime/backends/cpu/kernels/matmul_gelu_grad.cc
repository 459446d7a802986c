#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

// dy [M, K], w [K, N] or [N, K], pre [M, N] -> dpre [M, N]. Sums in double, k ascending.
Result<PreparedKernel> prepare_matmul_gelu_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const bool trans = spec.i64("trans_w") == 1;
    const int64_t inner = spec.input_dims(0).back(), columns = spec.output_dims(0).back();
    const int64_t rows = columns == 0 ? 0 : spec.output_elements(0) / columns;
    const int64_t k_step = trans ? 1 : columns, n_step = trans ? inner : 1;
    auto kernel = make_kernel([=](const LaunchArgs& args) {
      const T *dy = args.in<T>(0), *w = args.in<T>(1), *pre = args.in<T>(2);
      T* dpre = args.out<T>(0);
      if (rows == 0) return;
      args.pool.parallel_for(rows, [&](int64_t m) {
        for (int64_t n = 0; n < columns; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < inner; ++k)
            sum += static_cast<double>(dy[m * inner + k]) * static_cast<double>(w[k * k_step + n * n_step]);
          const int64_t at = m * columns + n;
          dpre[at] = static_cast<T>(sum * gelu_tanh_derivative(static_cast<double>(pre[at])));
        }
      });
    });
    const double flops =
        static_cast<double>(rows) * static_cast<double>(columns) * (2.0 * static_cast<double>(inner) + 22);
    return reference_kernel(spec, flops, std::move(kernel));
  });
}

}  // namespace tessera::cpu
