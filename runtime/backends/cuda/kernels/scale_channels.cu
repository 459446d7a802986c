#include "runtime/backends/cuda/kernels/recurrent_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct ScaleChannels {
  const T *x, *w;
  T* y;
  int64_t cols, repeats;
  __device__ void operator()(int64_t i) const {
    y[i] = narrow<T>(widen(x[i]) * widen(w[i % cols / repeats]));
  }
};

// dw of a weight, a row each.
template <class T, class S>
struct ScaleChannelsGradWeight {
  using W = Wide<T>;
  const T *dy, *x;
  S* dw;
  int64_t rows, cols, repeats;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t c) const {
    W sum = 0;
    team.each(rows * repeats, [&](int64_t i) {
      const int64_t at = i / repeats * cols + c * repeats + i % repeats;
      sum += widen(dy[at]) * widen(x[at]);
    });
    sum = team.sum(sum);
    if (team.rank == 0) dw[c] = narrow<S>(sum);
  }
};

}  // namespace

// x [R, C * r], w [C] -> y [R, C * r]
Result<PreparedKernel> prepare_scale_channels(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const int64_t C = spec.input_dims(1)[0], repeats = C > 0 ? rows.cols / C : 0;
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, rows.count * rows.cols,
                                      ScaleChannels<T>{args.in<T>(0), args.in<T>(1), args.out<T>(0), rows.cols, repeats});
                        }));
  });
}

// dy, x [R, C * r] -> dw [C]; w is operand 2, of which only the shape is used
Result<PreparedKernel> prepare_scale_channels_grad_weight(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const int64_t C = spec.input_dims(2)[0], repeats = C > 0 ? rows.cols / C : 0;
    return with_sums_type<T>(spec, [&](auto sums) -> Result<PreparedKernel> {
      using S = decltype(sums);
      return by_rows(spec, C, rows.count * repeats, [=](const LaunchArgs& args) {
        return ScaleChannelsGradWeight<T, S>{args.in<T>(0), args.in<T>(1), args.out<S>(0), rows.count, rows.cols, repeats};
      });
    });
  });
}

}  // namespace tessera::cuda
