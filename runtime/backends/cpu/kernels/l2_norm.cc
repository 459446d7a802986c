#include <cmath>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

template <class T>
double inverse_length(const T* x, int64_t cols, double eps) {
  double squares = 0;
  for (int64_t c = 0; c < cols; ++c) squares += double(x[c]) * double(x[c]);
  return 1 / std::sqrt(squares + eps);
}

}  // namespace

// x [R, C] -> y [R, C]
Result<PreparedKernel> prepare_l2_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows, eps = spec.f64("eps"), scale = spec.f64("scale")](const LaunchArgs& args) {
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* x = args.in<T>(0) + r * rows.cols;
          T* y = args.out<T>(0) + r * rows.cols;
          const double factor = scale * inverse_length(x, rows.cols, eps);
          for (int64_t c = 0; c < rows.cols; ++c) y[c] = T(factor * double(x[c]));
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows.count * rows.cols));
  });
}

// dy, x [R, C] -> dx [R, C]
Result<PreparedKernel> prepare_l2_norm_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows, eps = spec.f64("eps"), scale = spec.f64("scale")](const LaunchArgs& args) {
      args.pool.parallel_ranges(rows.count, row_grain(2 * rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T *dy = args.in<T>(0) + r * rows.cols, *x = args.in<T>(1) + r * rows.cols;
          T* dx = args.out<T>(0) + r * rows.cols;
          const double inverse = inverse_length(x, rows.cols, eps);
          double projection = 0;
          for (int64_t c = 0; c < rows.cols; ++c) projection += double(dy[c]) * double(x[c]);
          projection *= inverse * inverse;
          for (int64_t c = 0; c < rows.cols; ++c)
            dx[c] = T(scale * inverse * (double(dy[c]) - double(x[c]) * projection));
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 7.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
