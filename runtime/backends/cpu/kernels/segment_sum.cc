#include "runtime/backends/cpu/kernels/segment_sum.h"

#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x, segments [R, T] -> y [R, T]. A row is read once for each run of equal numbers.
Result<PreparedKernel> prepare_segment_sum(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* x = args.in<T>(0) + r * rows.cols;
          const int32_t* segments = args.in<int32_t>(1) + r * rows.cols;
          T* y = args.out<T>(0) + r * rows.cols;
          for (int64_t t = 0; t < rows.cols; ++t) {
            if (t > 0 && segments[t] == segments[t - 1]) {
              y[t] = y[t - 1];
              continue;
            }
            double sum = 0;
            for (int64_t u = 0; u < rows.cols; ++u)
              if (segments[u] == segments[t]) sum += double(x[u]);
            y[t] = T(sum);
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
