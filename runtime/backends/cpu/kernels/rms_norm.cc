#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

// Normalizes x, or x + addend; the sum is stored too and may share memory with x.
template <class T>
struct Normalized {
  const T *x, *addend, *w;
  T *sum, *y, *rstd;
};

template <class T>
void normalize(const Pool& pool, Rows rows, double eps, const Normalized<T>& n) {
  pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * rows.cols;
      if (n.addend != nullptr)
        for (int64_t c = at; c < at + rows.cols; ++c) n.sum[c] = n.x[c] + n.addend[c];
      const T* xr = (n.addend != nullptr ? n.sum : n.x) + at;
      double squares = 0;
      for (int64_t c = 0; c < rows.cols; ++c) squares += double(xr[c]) * double(xr[c]);
      const double scale = 1 / std::sqrt(squares / double(std::max<int64_t>(rows.cols, 1)) + eps);
      for (int64_t c = 0; c < rows.cols; ++c) n.y[at + c] = T(double(xr[c]) * scale * double(n.w[c]));
      n.rstd[r] = T(scale);
    }
  });
}

}  // namespace

// x [R, C], w [C] -> y [R, C], rstd [R]
Result<PreparedKernel> prepare_rms_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows, eps = spec.f64("eps")](const LaunchArgs& args) {
      normalize<T>(args.pool, rows, eps,
                   {args.in<T>(0), nullptr, args.in<T>(1), nullptr, args.out<T>(0), args.out<T>(1)});
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(rows.count * rows.cols));
  });
}

// x, addend [R, C], w [C] -> sum, y [R, C], rstd [R]
Result<PreparedKernel> prepare_add_rms_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows, eps = spec.f64("eps")](const LaunchArgs& args) {
      normalize<T>(
          args.pool, rows, eps,
          {args.in<T>(0), args.in<T>(1), args.in<T>(2), args.out<T>(0), args.out<T>(1), args.out<T>(2)});
    };
    return reference_kernel(spec, make_kernel(launch), 5.0 * double(rows.count * rows.cols));
  });
}

namespace {

// `addend` may be null; dx may be dy or addend.
template <class T>
void input_gradient(const Pool& pool, Rows rows, const T* dy, const T* x, const T* w, const T* rstd,
                    const T* addend, T* dx) {
  pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * rows.cols;
      const double scale = double(rstd[r]);
      double projection = 0;  // mean over c of g * xhat
      for (int64_t c = 0; c < rows.cols; ++c)
        projection += double(dy[at + c]) * double(w[c]) * double(x[at + c]) * scale;
      projection /= double(std::max<int64_t>(rows.cols, 1));
      for (int64_t c = 0; c < rows.cols; ++c) {
        const double other = addend == nullptr ? 0 : double(addend[at + c]);
        dx[at + c] =
            T(scale * (double(dy[at + c]) * double(w[c]) - double(x[at + c]) * scale * projection) + other);
      }
    }
  });
}

template <class T>
void weight_gradient(const Pool& pool, Rows rows, const T* dy, const T* x, const T* rstd, T* dw) {
  pool.parallel_ranges(rows.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    double sums[kColumnBlock] = {};
    for (int64_t r = 0; r < rows.count; ++r) {
      const int64_t at = r * rows.cols;
      for (int64_t c = begin; c < end; ++c)
        sums[c - begin] += double(dy[at + c]) * double(x[at + c]) * double(rstd[r]);
    }
    for (int64_t c = begin; c < end; ++c) dw[c] = T(sums[c - begin]);
  });
}

}  // namespace

// dy, x [R, C], w [C], rstd [R] -> dx [R, C]
Result<PreparedKernel> prepare_rms_norm_grad_input(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      input_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(2), args.in<T>(3), nullptr,
                        args.out<T>(0));
    };
    return reference_kernel(spec, make_kernel(launch), 9.0 * double(rows.count * rows.cols));
  });
}

// dy, x [R, C], rstd [R] -> dw [C]
Result<PreparedKernel> prepare_rms_norm_grad_weight(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      weight_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(2), args.out<T>(0));
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows.count * rows.cols));
  });
}

// dy, x [R, C], w [C], rstd [R], addend [R, C] -> dx [R, C], dw [C]
Result<PreparedKernel> prepare_rms_norm_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const bool adds = spec.input_count() == 5;
    auto launch = [rows, adds](const LaunchArgs& args) {
      // Weight gradients first: they alone read dy, whose place dx may take.
      weight_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(3), args.out<T>(1));
      input_gradient<T>(args.pool, rows, args.in<T>(0), args.in<T>(1), args.in<T>(2), args.in<T>(3),
                        adds ? args.in<T>(4) : nullptr, args.out<T>(0));
    };
    return reference_kernel(spec, make_kernel(launch), 12.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
