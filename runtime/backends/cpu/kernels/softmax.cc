#include <cmath>
#include <limits>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [R, C] -> y [R, C]
Result<PreparedKernel> prepare_softmax(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * rows.cols; at < end * rows.cols; at += rows.cols) {
          double top = -std::numeric_limits<double>::infinity(), sum = 0;
          for (int64_t c = 0; c < rows.cols; ++c) top = std::max(top, double(x[at + c]));
          for (int64_t c = 0; c < rows.cols; ++c) sum += std::exp(double(x[at + c]) - top);
          for (int64_t c = 0; c < rows.cols; ++c) y[at + c] = T(std::exp(double(x[at + c]) - top) / sum);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 5.0 * double(rows.count * rows.cols));
  });
}

// y, dy [R, C] -> dx [R, C]
Result<PreparedKernel> prepare_softmax_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      const T *y = args.in<T>(0), *dy = args.in<T>(1);
      T* dx = args.out<T>(0);
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t at = r * rows.cols;
          double sum = 0;
          for (int64_t c = 0; c < rows.cols; ++c) sum += double(dy[at + c]) * double(y[at + c]);
          for (int64_t c = 0; c < rows.cols; ++c)
            dx[at + c] = T(double(y[at + c]) * (double(dy[at + c]) - sum));
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
