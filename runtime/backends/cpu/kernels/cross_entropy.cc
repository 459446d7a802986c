#include <cmath>
#include <limits>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {
// exp(x - m), 0 for x = -inf also where the whole row is -inf.
double exp_above(double x, double m) {
  return x == -std::numeric_limits<double>::infinity() ? 0 : std::exp(x - m);
}
}  // namespace

// x [R, V] -> m [R]. A NaN in the row makes the maximum NaN, so that a broken loss shows.
Result<PreparedKernel> prepare_row_max(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      T* m = args.out<T>(0);
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          T best = -std::numeric_limits<T>::infinity();
          for (int64_t v = 0; v < rows.cols; ++v) {
            const T value = x[r * rows.cols + v];
            if (value > best || std::isnan(value)) best = value;
            if (std::isnan(best)) break;
          }
          m[r] = best;
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(rows.count * rows.cols));
  });
}

// x [R, V], m [R] -> s [R]
Result<PreparedKernel> prepare_row_sum_exp(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      const T *x = args.in<T>(0), *m = args.in<T>(1);
      T* s = args.out<T>(0);
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          double sum = 0;
          for (int64_t v = 0; v < rows.cols; ++v)
            sum += exp_above(double(x[r * rows.cols + v]), double(m[r]));
          s[r] = T(sum);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows.count * rows.cols));
  });
}

// x [R, V], labels [R] -> picked [R]
Result<PreparedKernel> prepare_pick(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const FactorIndex v(spec.factor('v'));
    auto launch = [rows, v](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const int32_t* labels = args.in<int32_t>(1);
      T* picked = args.out<T>(0);
      for (int64_t r = 0; r < rows.count; ++r) {
        const int64_t at = v.to_local(labels[r]);
        picked[r] = at >= 0 && at < rows.cols ? x[r * rows.cols + at] : T(0);
      }
    };
    return reference_kernel(spec, make_kernel(launch), 0);
  });
}

// labels, m, s, picked [R] -> loss [R]
Result<PreparedKernel> prepare_cross_entropy(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t rows = spec.output_elements(0);
    auto launch = [rows](const LaunchArgs& args) {
      const int32_t* labels = args.in<int32_t>(1);
      const T *m = args.in<T>(2), *s = args.in<T>(3), *picked = args.in<T>(4);
      T* loss = args.out<T>(0);
      for (int64_t r = 0; r < rows; ++r)
        loss[r] = labels[r] < 0 ? T(0) : T(std::log(double(s[r])) + double(m[r]) - double(picked[r]));
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows));
  });
}

// x [R, V], labels, m, s, dloss [R] -> dx [R, V], which may be x itself
Result<PreparedKernel> prepare_cross_entropy_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const FactorIndex v(spec.factor('v'));
    auto launch = [rows, v](const LaunchArgs& args) {
      const T *x = args.in<T>(0), *m = args.in<T>(2), *s = args.in<T>(3), *dloss = args.in<T>(4);
      const int32_t* labels = args.in<int32_t>(1);
      T* dx = args.out<T>(0);
      args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t at = r * rows.cols, label = v.to_local(labels[r]);
          const bool counts = labels[r] >= 0;
          for (int64_t i = 0; i < rows.cols; ++i) {
            const double p = exp_above(double(x[at + i]), double(m[r])) / double(s[r]);
            dx[at + i] = counts ? T((p - (i == label ? 1 : 0)) * double(dloss[r])) : T(0);
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
