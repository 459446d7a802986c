// Phases of layer_norm and rms_norm over a split channel: statistics of the local columns, and the results
// from the statistics of the whole row. The number of channels is the global extent of factor c.
#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

double channels_of(const KernelSpec& spec) {
  return static_cast<double>(std::max<int64_t>(spec.factor('c').global_extent, 1));
}

// Prepares a kernel that makes one row at a time: `row(args, r, r * C)`.
template <class Row>
PreparedKernel by_rows(const KernelSpec& spec, Rows rows, double flops, Row row) {
  auto launch = [rows, row](const LaunchArgs& args) {
    args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(args, r, r * rows.cols);
    });
  };
  return reference_kernel(spec, make_kernel(launch), flops * double(rows.count * rows.cols));
}

}  // namespace

// x [R, C] -> s [R]
Result<PreparedKernel> prepare_row_sum(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows, 1, [rows](const LaunchArgs& args, int64_t r, int64_t at) {
      const T* x = args.in<T>(0) + at;
      double sum = 0;
      for (int64_t c = 0; c < rows.cols; ++c) sum += double(x[c]);
      args.out<T>(0)[r] = T(sum);
    });
  });
}

// x [R, C], s [R] optional -> ss [R]
Result<PreparedKernel> prepare_row_sum_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const double channels = channels_of(spec);
    const bool centred = spec.input_count() == 2;
    return by_rows(spec, rows, 3, [=](const LaunchArgs& args, int64_t r, int64_t at) {
      const T* x = args.in<T>(0) + at;
      const double mean = centred ? double(args.in<T>(1)[r]) / channels : 0;
      double sum = 0;
      for (int64_t c = 0; c < rows.cols; ++c) sum += (double(x[c]) - mean) * (double(x[c]) - mean);
      args.out<T>(0)[r] = T(sum);
    });
  });
}

// x [R, C], w, b [C], s, ss [R] -> y [R, C], mean, rstd [R]
Result<PreparedKernel> prepare_layer_norm_finish(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const double channels = channels_of(spec), eps = spec.f64("eps");
    return by_rows(spec, rows, 4, [=](const LaunchArgs& args, int64_t r, int64_t at) {
      const T *x = args.in<T>(0) + at, *w = args.in<T>(1), *b = args.in<T>(2);
      T* y = args.out<T>(0) + at;
      const double mean = double(args.in<T>(3)[r]) / channels;
      const double rstd = 1 / std::sqrt(double(args.in<T>(4)[r]) / channels + eps);
      for (int64_t c = 0; c < rows.cols; ++c)
        y[c] = T((double(x[c]) - mean) * rstd * double(w[c]) + double(b[c]));
      args.out<T>(1)[r] = T(mean);
      args.out<T>(2)[r] = T(rstd);
    });
  });
}

// dy, x [R, C], w [C], mean, rstd [R] -> sg, sgx [R]
Result<PreparedKernel> prepare_layer_norm_grad_sums(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows, 6, [=](const LaunchArgs& args, int64_t r, int64_t at) {
      const T *dy = args.in<T>(0) + at, *x = args.in<T>(1) + at, *w = args.in<T>(2);
      const double mean = double(args.in<T>(3)[r]), rstd = double(args.in<T>(4)[r]);
      double sum = 0, projection = 0;
      for (int64_t c = 0; c < rows.cols; ++c) {
        const double g = double(dy[c]) * double(w[c]);
        sum += g;
        projection += g * (double(x[c]) - mean) * rstd;
      }
      args.out<T>(0)[r] = T(sum);
      args.out<T>(1)[r] = T(projection);
    });
  });
}

// dy, x [R, C], w [C], mean, rstd, sg, sgx [R] -> dx [R, C]
Result<PreparedKernel> prepare_layer_norm_grad_finish(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const double channels = channels_of(spec);
    return by_rows(spec, rows, 7, [=](const LaunchArgs& args, int64_t r, int64_t at) {
      const T *dy = args.in<T>(0) + at, *x = args.in<T>(1) + at, *w = args.in<T>(2);
      T* dx = args.out<T>(0) + at;
      const double mean = double(args.in<T>(3)[r]), rstd = double(args.in<T>(4)[r]);
      const double sum = double(args.in<T>(5)[r]) / channels,
                   projection = double(args.in<T>(6)[r]) / channels;
      for (int64_t c = 0; c < rows.cols; ++c)
        dx[c] = T(rstd * (double(dy[c]) * double(w[c]) - sum - (double(x[c]) - mean) * rstd * projection));
    });
  });
}

// x [R, C], w [C], ss [R] -> y [R, C], rstd [R]
Result<PreparedKernel> prepare_rms_norm_finish(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const double channels = channels_of(spec), eps = spec.f64("eps");
    return by_rows(spec, rows, 2, [=](const LaunchArgs& args, int64_t r, int64_t at) {
      const T *x = args.in<T>(0) + at, *w = args.in<T>(1);
      T* y = args.out<T>(0) + at;
      const double rstd = 1 / std::sqrt(double(args.in<T>(2)[r]) / channels + eps);
      for (int64_t c = 0; c < rows.cols; ++c) y[c] = T(double(x[c]) * rstd * double(w[c]));
      args.out<T>(1)[r] = T(rstd);
    });
  });
}

// dy, x [R, C], w [C], rstd [R] -> sgx [R]
Result<PreparedKernel> prepare_rms_norm_grad_sums(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows, 4, [=](const LaunchArgs& args, int64_t r, int64_t at) {
      const T *dy = args.in<T>(0) + at, *x = args.in<T>(1) + at, *w = args.in<T>(2);
      const double rstd = double(args.in<T>(3)[r]);
      double projection = 0;
      for (int64_t c = 0; c < rows.cols; ++c)
        projection += double(dy[c]) * double(w[c]) * double(x[c]) * rstd;
      args.out<T>(0)[r] = T(projection);
    });
  });
}

// dy, x [R, C], w [C], rstd, sgx [R] -> dx [R, C]
Result<PreparedKernel> prepare_rms_norm_grad_finish(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const double channels = channels_of(spec);
    return by_rows(spec, rows, 5, [=](const LaunchArgs& args, int64_t r, int64_t at) {
      const T *dy = args.in<T>(0) + at, *x = args.in<T>(1) + at, *w = args.in<T>(2);
      T* dx = args.out<T>(0) + at;
      const double rstd = double(args.in<T>(3)[r]), projection = double(args.in<T>(4)[r]) / channels;
      for (int64_t c = 0; c < rows.cols; ++c)
        dx[c] = T(rstd * (double(dy[c]) * double(w[c]) - double(x[c]) * rstd * projection));
    });
  });
}

}  // namespace tessera::cpu
