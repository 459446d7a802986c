#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [R, C * r], w [C] -> y [R, C * r]
Result<PreparedKernel> prepare_scale_channels(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const int64_t C = spec.input_dims(1)[0], repeats = C > 0 ? rows.cols / C : 0;
    auto launch = [=](const LaunchArgs& args) {
      const T *x = args.in<T>(0), *w = args.in<T>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          for (int64_t c = 0; c < C; ++c)
            for (int64_t i = r * rows.cols + c * repeats; i < r * rows.cols + (c + 1) * repeats; ++i)
              y[i] = T(double(x[i]) * double(w[c]));
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(rows.count * rows.cols));
  });
}

// dy, x [R, C * r] -> dw [C]; w is operand 2, of which only the shape is used
Result<PreparedKernel> prepare_scale_channels_grad_weight(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const int64_t C = spec.input_dims(2)[0], repeats = C > 0 ? rows.cols / C : 0;
    auto launch = [=](const LaunchArgs& args) {
      const T *dy = args.in<T>(0), *x = args.in<T>(1);
      T* dw = args.out<T>(0);
      args.pool.parallel_ranges(C, row_grain(rows.count * repeats), [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          double sum = 0;
          for (int64_t r = 0; r < rows.count; ++r)
            for (int64_t i = r * rows.cols + c * repeats; i < r * rows.cols + (c + 1) * repeats; ++i)
              sum += double(dy[i]) * double(x[i]);
          dw[c] = T(sum);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
