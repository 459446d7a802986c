#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [R, V] -> y [R]
Result<PreparedKernel> prepare_log_sum_exp(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* x = args.in<T>(0) + r * rows.cols;
          double most = -std::numeric_limits<double>::infinity(), sum = 0;
          for (int64_t v = 0; v < rows.cols; ++v) most = std::max(most, double(x[v]));
          // An infinite maximum decides the result without the sum; NaN stays NaN.
          const double base = std::isinf(most) ? 0 : most;
          for (int64_t v = 0; v < rows.cols; ++v) sum += std::exp(double(x[v]) - base);
          args.out<T>(0)[r] = T(base + std::log(sum));
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 5.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
