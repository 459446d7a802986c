#include "runtime/backends/cuda/kernels/recurrent_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct L2Norm {
  using W = Wide<T>;
  const T* x;
  T* y;
  int64_t cols;
  W eps, scale;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    W squares = 0;
    team.each(cols, [&](int64_t c) {
      const W value = widen(x[row * cols + c]);
      squares += value * value;
    });
    const W factor = scale / sqrt(team.sum(squares) + eps);
    team.each(cols, [&](int64_t c) { y[row * cols + c] = narrow<T>(factor * widen(x[row * cols + c])); });
  }
};

template <class T>
struct L2NormGrad {
  using W = Wide<T>;
  const T *dy, *x;
  T* dx;
  int64_t cols;
  W eps, scale;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    W squares = 0, dot = 0;
    team.each(cols, [&](int64_t c) {
      const W value = widen(x[row * cols + c]);
      squares += value * value;
      dot += value * widen(dy[row * cols + c]);
    });
    const W inverse = W(1) / sqrt(team.sum(squares) + eps);
    const W projection = team.sum(dot) * inverse * inverse;
    team.each(cols, [&](int64_t c) {
      const int64_t at = row * cols + c;
      dx[at] = narrow<T>(scale * inverse * (widen(dy[at]) - widen(x[at]) * projection));
    });
  }
};

}  // namespace

// x [R, C] -> y [R, C]
Result<PreparedKernel> prepare_l2_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const W eps = W(spec.f64("eps")), scale = W(spec.f64("scale"));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return L2Norm<T>{args.in<T>(0), args.out<T>(0), rows.cols, eps, scale};
    });
  });
}

// dy, x [R, C] -> dx [R, C]
Result<PreparedKernel> prepare_l2_norm_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const W eps = W(spec.f64("eps")), scale = W(spec.f64("scale"));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return L2NormGrad<T>{args.in<T>(0), args.in<T>(1), args.out<T>(0), rows.cols, eps, scale};
    });
  });
}

}  // namespace tessera::cuda
