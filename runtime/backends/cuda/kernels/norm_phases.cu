// Phases of layer_norm and rms_norm over a split channel: statistics of the local columns, and the results
// from the statistics of the whole row. The number of channels is the global extent of factor c.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

double channels_of(const KernelSpec& spec) {
  const int64_t extent = spec.factor('c').global_extent;
  return static_cast<double>(extent > 1 ? extent : 1);
}

// Sum of (x - mean)^power, power 1 or 2; mean = s / channels where s is given.
template <class T>
struct RowPower {
  using W = Wide<T>;
  const T* x;
  const W* s;
  W* out;
  int64_t cols;
  W channels;
  bool squared;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const W mean = s != nullptr ? s[row] / channels : W(0);
    W sum = 0;
    team.each(cols, [&](int64_t c) {
      const W d = widen(x[row * cols + c]) - mean;
      sum += squared ? d * d : d;
    });
    sum = team.sum(sum);
    if (team.rank == 0) out[row] = sum;
  }
};

// y = (x - mean) rstd w (+ b); s is null for rms_norm, as are b and mean_out.
template <class T>
struct Finish {
  using W = Wide<T>;
  const T *x, *w, *b;
  const W *s, *ss;
  T* y;
  W *mean_out, *rstd_out;
  int64_t cols;
  W channels, eps;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    const W mean = s != nullptr ? s[row] / channels : W(0), rstd = W(1) / sqrt(ss[row] / channels + eps);
    team.each(cols, [&](int64_t c) {
      const W scaled = (widen(x[at + c]) - mean) * rstd * widen(w[c]);
      y[at + c] = narrow<T>(b != nullptr ? scaled + widen(b[c]) : scaled);
    });
    if (team.rank != 0) return;
    if (mean_out != nullptr) mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
};

// sg = sum of g, sgx = sum of g xhat, g = dy w; mean and sg are null for rms_norm.
template <class T>
struct GradSums {
  using W = Wide<T>;
  const T *dy, *x, *w;
  const W *mean, *rstd;
  W *sg, *sgx;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    const W center = mean != nullptr ? mean[row] : W(0), scale = rstd[row];
    W sum = 0, projection = 0;
    team.each(cols, [&](int64_t c) {
      const W g = widen(dy[at + c]) * widen(w[c]);
      sum += g;
      projection += g * (widen(x[at + c]) - center) * scale;
    });
    sum = team.sum(sum);
    projection = team.sum(projection);
    if (team.rank != 0) return;
    if (sg != nullptr) sg[row] = sum;
    sgx[row] = projection;
  }
};

template <class T>
struct GradFinish {
  using W = Wide<T>;
  const T *dy, *x, *w;
  const W *mean, *rstd, *sg, *sgx;
  T* dx;
  int64_t cols;
  W channels;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    const W center = mean != nullptr ? mean[row] : W(0), scale = rstd[row];
    const W sum = sg != nullptr ? sg[row] / channels : W(0), projection = sgx[row] / channels;
    team.each(cols, [&](int64_t c) {
      const W g = widen(dy[at + c]) * widen(w[c]), xhat = (widen(x[at + c]) - center) * scale;
      dx[at + c] = narrow<T>(scale * (g - sum - xhat * projection));
    });
  }
};

Result<PreparedKernel> row_power(const KernelSpec& spec, bool squared) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const bool centred = spec.input_count() == 2;
    const double channels = centred ? channels_of(spec) : 1;
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return RowPower<T>{
          args.in<T>(0), centred ? args.in<W>(1) : nullptr, args.out<W>(0), rows.cols, W(channels), squared};
    });
  });
}

Result<PreparedKernel> finish(const KernelSpec& spec, bool centred) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double channels = channels_of(spec), eps = spec.f64("eps");
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      Finish<T> f{};
      f.x = args.in<T>(0);
      f.w = args.in<T>(1);
      f.b = centred ? args.in<T>(2) : nullptr;
      f.s = centred ? args.in<W>(3) : nullptr;
      f.ss = args.in<W>(centred ? 4 : 2);
      f.y = args.out<T>(0);
      f.mean_out = centred ? args.out<W>(1) : nullptr;
      f.rstd_out = args.out<W>(centred ? 2 : 1);
      f.cols = rows.cols;
      f.channels = W(channels);
      f.eps = W(eps);
      return f;
    });
  });
}

Result<PreparedKernel> grad_sums(const KernelSpec& spec, bool centred) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return GradSums<T>{args.in<T>(0),
                         args.in<T>(1),
                         args.in<T>(2),
                         centred ? args.in<W>(3) : nullptr,
                         args.in<W>(centred ? 4 : 3),
                         centred ? args.out<W>(0) : nullptr,
                         args.out<W>(centred ? 1 : 0),
                         rows.cols};
    });
  });
}

Result<PreparedKernel> grad_finish(const KernelSpec& spec, bool centred) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double channels = channels_of(spec);
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return GradFinish<T>{args.in<T>(0),
                           args.in<T>(1),
                           args.in<T>(2),
                           centred ? args.in<W>(3) : nullptr,
                           args.in<W>(centred ? 4 : 3),
                           centred ? args.in<W>(5) : nullptr,
                           args.in<W>(centred ? 6 : 4),
                           args.out<T>(0),
                           rows.cols,
                           W(channels)};
    });
  });
}

}  // namespace

// x [R, C] -> s [R]
Result<PreparedKernel> prepare_row_sum(const KernelSpec& spec) { return row_power(spec, false); }
// x [R, C], s [R] optional -> ss [R]
Result<PreparedKernel> prepare_row_sum_squares(const KernelSpec& spec) { return row_power(spec, true); }
// x [R, C], w, b [C], s, ss [R] -> y [R, C], mean, rstd [R]
Result<PreparedKernel> prepare_layer_norm_finish(const KernelSpec& spec) { return finish(spec, true); }
// x [R, C], w [C], ss [R] -> y [R, C], rstd [R]
Result<PreparedKernel> prepare_rms_norm_finish(const KernelSpec& spec) { return finish(spec, false); }
// dy, x [R, C], w [C], mean, rstd [R] -> sg, sgx [R]
Result<PreparedKernel> prepare_layer_norm_grad_sums(const KernelSpec& spec) { return grad_sums(spec, true); }
// dy, x [R, C], w [C], rstd [R] -> sgx [R]
Result<PreparedKernel> prepare_rms_norm_grad_sums(const KernelSpec& spec) { return grad_sums(spec, false); }
// dy, x [R, C], w [C], mean, rstd, sg, sgx [R] -> dx [R, C]
Result<PreparedKernel> prepare_layer_norm_grad_finish(const KernelSpec& spec) {
  return grad_finish(spec, true);
}
// dy, x [R, C], w [C], rstd, sgx [R] -> dx [R, C]
Result<PreparedKernel> prepare_rms_norm_grad_finish(const KernelSpec& spec) {
  return grad_finish(spec, false);
}

}  // namespace tessera::cuda
