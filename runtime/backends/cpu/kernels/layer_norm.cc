#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

// Normalizes x, or x + addend; the sum is stored too and may share memory with x.
template <class T>
struct Normalized {
  const T *x, *addend, *w, *b;
  T *sum, *y, *mean, *rstd;
};

template <class T>
void normalize(const Pool& pool, Rows rows, double eps, const Normalized<T>& n) {
  const double inverse = 1 / double(std::max<int64_t>(rows.cols, 1));
  pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * rows.cols;
      if (n.addend != nullptr)
        for (int64_t c = at; c < at + rows.cols; ++c) n.sum[c] = n.x[c] + n.addend[c];
      const T* xr = (n.addend != nullptr ? n.sum : n.x) + at;
      double sum = 0, squares = 0;
      for (int64_t c = 0; c < rows.cols; ++c) sum += double(xr[c]);
      const double center = sum * inverse;
      for (int64_t c = 0; c < rows.cols; ++c) squares += (double(xr[c]) - center) * (double(xr[c]) - center);
      const double scale = 1 / std::sqrt(squares * inverse + eps);
      for (int64_t c = 0; c < rows.cols; ++c)
        n.y[at + c] = T((double(xr[c]) - center) * scale * double(n.w[c]) + double(n.b[c]));
      n.mean[r] = T(center);
      n.rstd[r] = T(scale);
    }
  });
}

}  // namespace

// x [R, C], w, b [C] -> y [R, C], mean [R], rstd [R]
Result<PreparedKernel> prepare_layer_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows, eps = spec.f64("eps")](const LaunchArgs& args) {
      normalize<T>(args.pool, rows, eps,
                   {args.in<T>(0), nullptr, args.in<T>(1), args.in<T>(2), nullptr, args.out<T>(0),
                    args.out<T>(1), args.out<T>(2)});
    };
    return reference_kernel(spec, make_kernel(launch), 8.0 * double(rows.count * rows.cols));
  });
}

// x, addend [R, C], w, b [C] -> sum, y [R, C], mean [R], rstd [R]
Result<PreparedKernel> prepare_add_layer_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows, eps = spec.f64("eps")](const LaunchArgs& args) {
      normalize<T>(args.pool, rows, eps,
                   {args.in<T>(0), args.in<T>(1), args.in<T>(2), args.in<T>(3), args.out<T>(0),
                    args.out<T>(1), args.out<T>(2), args.out<T>(3)});
    };
    return reference_kernel(spec, make_kernel(launch), 9.0 * double(rows.count * rows.cols));
  });
}

namespace {

// `addend` may be null; dx may be dy or addend.
template <class T>
void input_gradient(const Pool& pool, Rows rows, const T* dy, const T* x, const T* w, const T* mean,
                    const T* rstd, const T* addend, T* dx) {
  const double inverse = 1 / double(std::max<int64_t>(rows.cols, 1));
  pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * rows.cols;
      const double scale = double(rstd[r]), center = double(mean[r]);
      double g_mean = 0, g_xhat_mean = 0;
      for (int64_t c = 0; c < rows.cols; ++c) {
        const double g = double(dy[at + c]) * double(w[c]);
        g_mean += g;
        g_xhat_mean += g * (double(x[at + c]) - center) * scale;
      }
      g_mean *= inverse;
      g_xhat_mean *= inverse;
      for (int64_t c = 0; c < rows.cols; ++c) {
        const double g = double(dy[at + c]) * double(w[c]);
        const double other = addend == nullptr ? 0 : double(addend[at + c]);
        dx[at + c] = T(scale * (g - g_mean - (double(x[at + c]) - center) * scale * g_xhat_mean) + other);
      }
    }
  });
}

template <class T>
void weight_gradient(const Pool& pool, Rows rows, const T* dy, const T* x, const T* mean, const T* rstd,
                     T* dw, T* db) {
  pool.parallel_ranges(rows.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    double weight[kColumnBlock] = {}, bias[kColumnBlock] = {};
    for (int64_t r = 0; r < rows.count; ++r) {
      const int64_t at = r * rows.cols;
      const double scale = double(rstd[r]), center = double(mean[r]);
      for (int64_t c = begin; c < end; ++c) {
        weight[c - begin] += double(dy[at + c]) * (double(x[at + c]) - center) * scale;
        bias[c - begin] += double(dy[at + c]);
      }
    }
    for (int64_t c = begin; c < end; ++c) {
      dw[c] = T(weight[c - begin]);
      db[c] = T(bias[c - begin]);
    }
  });
}

}  // namespace

// dy, x [R, C], w [C], mean, rstd [R] -> dx [R, C]
Result<PreparedKernel> prepare_layer_norm_grad_input(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      input_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(2), args.in<T>(3),
                        args.in<T>(4), nullptr, args.out<T>(0));
    };
    return reference_kernel(spec, make_kernel(launch), 11.0 * double(rows.count * rows.cols));
  });
}

// dy, x [R, C], mean, rstd [R] -> dw, db [C]
Result<PreparedKernel> prepare_layer_norm_grad_weight(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      weight_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(2), args.in<T>(3),
                         args.out<T>(0), args.out<T>(1));
    };
    return reference_kernel(spec, make_kernel(launch), 5.0 * double(rows.count * rows.cols));
  });
}

// dy, x [R, C], w [C], mean, rstd [R], addend [R, C] -> dx [R, C], dw, db [C], with column_sums dx by column
Result<PreparedKernel> prepare_layer_norm_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const bool adds = spec.input_count() == 6, sums = spec.output_count() == 4;
    auto launch = [rows, adds, sums](const LaunchArgs& args) {
      // Weight gradients first: they alone read dy, whose place dx may take.
      weight_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(3), args.in<T>(4),
                         args.out<T>(1), args.out<T>(2));
      input_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(2), args.in<T>(3),
                        args.in<T>(4), adds ? args.in<T>(5) : nullptr, args.out<T>(0));
      if (sums) column_sums<T>(args.pool, rows, args.out<T>(0), args.out<T>(3));
    };
    return reference_kernel(spec, make_kernel(launch), 16.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
