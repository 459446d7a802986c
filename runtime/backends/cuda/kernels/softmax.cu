#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct Softmax {
  using W = Wide<T>;
  const T* x;
  T* y;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    W top = minus_infinity<W>(), sum = 0;
    team.each(cols, [&](int64_t c) { top = Larger{}(top, widen(x[at + c])); });
    top = team.max(top);
    team.each(cols, [&](int64_t c) { sum += exp(widen(x[at + c]) - top); });
    sum = team.sum(sum);
    team.each(cols, [&](int64_t c) { y[at + c] = narrow<T>(exp(widen(x[at + c]) - top) / sum); });
  }
};

template <class T>
struct SoftmaxGrad {
  using W = Wide<T>;
  const T *y, *dy;
  T* dx;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    W sum = 0;
    team.each(cols, [&](int64_t c) { sum += widen(dy[at + c]) * widen(y[at + c]); });
    sum = team.sum(sum);
    team.each(cols, [&](int64_t c) { dx[at + c] = narrow<T>(widen(y[at + c]) * (widen(dy[at + c]) - sum)); });
  }
};

template <class T>
struct LogSumExp {
  using W = Wide<T>;
  const T* x;
  T* y;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    W most = minus_infinity<W>(), sum = 0;
    team.each(cols, [&](int64_t c) { most = Larger{}(most, widen(x[at + c])); });
    most = team.max(most);
    // Of an infinite maximum the logarithm is known without the sum; NaN stays NaN.
    const W base = isinf(most) ? W(0) : most;
    team.each(cols, [&](int64_t c) { sum += exp(widen(x[at + c]) - base); });
    sum = team.sum(sum);
    if (team.rank == 0) y[row] = narrow<T>(base + log(sum));
  }
};

}  // namespace

// x [R, C] -> y [R, C]
Result<Prepared> prepare_softmax(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return Softmax<T>{args.in<T>(0), args.out<T>(0), rows.cols};
    });
  });
}

// y, dy [R, C] -> dx [R, C]
Result<Prepared> prepare_softmax_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return SoftmaxGrad<T>{args.in<T>(0), args.in<T>(1), args.out<T>(0), rows.cols};
    });
  });
}

// x [R, V] -> y [R]
Result<Prepared> prepare_log_sum_exp(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return LogSumExp<T>{args.in<T>(0), args.out<T>(0), rows.cols};
    });
  });
}

}  // namespace tessera::cuda
