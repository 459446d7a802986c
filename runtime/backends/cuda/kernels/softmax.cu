#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T, int kVec>
struct Softmax {
  using W = Wide<T>;
  const T* x;
  T* y;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    W top = minus_infinity<W>(), sum = 0;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + at + c, v);
      for (int i = 0; i < kVec; ++i) top = Larger{}(top, v[i]);
    });
    top = team.max(top);
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + at + c, v);
      for (int i = 0; i < kVec; ++i) sum += exp(v[i] - top);
    });
    sum = team.sum(sum);
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + at + c, v);
      for (int i = 0; i < kVec; ++i) v[i] = exp(v[i] - top) / sum;
      store_pack(y + at + c, v);
    });
  }
};

template <class T, int kVec>
struct SoftmaxGrad {
  using W = Wide<T>;
  const T *y, *dy;
  T* dx;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    W sum = 0;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec], d[kVec];
      load_pack(y + at + c, v);
      load_pack(dy + at + c, d);
      for (int i = 0; i < kVec; ++i) sum += d[i] * v[i];
    });
    sum = team.sum(sum);
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec], d[kVec];
      load_pack(y + at + c, v);
      load_pack(dy + at + c, d);
      for (int i = 0; i < kVec; ++i) v[i] *= d[i] - sum;
      store_pack(dx + at + c, v);
    });
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
    // An infinite maximum decides the result without the sum; NaN stays NaN.
    const W base = isinf(most) ? W(0) : most;
    team.each(cols, [&](int64_t c) { sum += exp(widen(x[at + c]) - base); });
    sum = team.sum(sum);
    if (team.rank == 0) y[row] = narrow<T>(base + log(sum));
  }
};

}  // namespace

// x [R, C] -> y [R, C]
Result<PreparedKernel> prepare_softmax(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return Softmax<T, packed.value>{args.in<T>(0), args.out<T>(0), rows.cols};
    });
  });
}

// y, dy [R, C] -> dx [R, C]
Result<PreparedKernel> prepare_softmax_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return SoftmaxGrad<T, packed.value>{args.in<T>(0), args.in<T>(1), args.out<T>(0), rows.cols};
    });
  });
}

// x [R, V] -> y [R]
Result<PreparedKernel> prepare_log_sum_exp(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return LogSumExp<T>{args.in<T>(0), args.out<T>(0), rows.cols};
    });
  });
}

}  // namespace tessera::cuda
