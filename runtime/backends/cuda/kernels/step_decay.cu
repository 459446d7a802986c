#include "runtime/backends/cuda/kernels/activation_math.cuh"
#include "runtime/backends/cuda/kernels/recurrent_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class W>
struct StepRange {
  W least, most;
  explicit StepRange(const KernelSpec& spec) : least(W(spec.f64("least"))), most(W(spec.f64("most"))) {}
  __device__ bool has(W step) const { return step >= least && step <= most; }
  __device__ W clamp(W step) const { return step < least ? least : step > most ? most : step; }
};

template <class W>
__device__ W step_of(W z) {
  return (z > W(0) ? z : W(0)) + log1p(exp(-fabs(z)));
}

template <class T>
struct StepDecay {
  using W = Wide<T>;
  const T* x;
  const W *log_rate, *bias;
  W *step, *log_decay;
  int64_t H;
  StepRange<W> range;
  __device__ void operator()(int64_t i) const {
    const W value = range.clamp(step_of(widen(x[i]) + bias[i % H]));
    step[i] = value;
    log_decay[i] = -exp(log_rate[i % H]) * value;
  }
};

template <class T>
struct StepDecayGrad {
  using W = Wide<T>;
  const W *dstep, *dlog_decay;
  const T* x;
  const W *log_rate, *bias;
  T* dx;
  W *dlog_rate, *dbias;
  int64_t rows, H;
  StepRange<W> range;

  __device__ W slope(int64_t i) const {
    const int64_t h = i % H;
    const W z = widen(x[i]) + bias[h];
    return range.has(step_of(z)) ? (dstep[i] - exp(log_rate[h]) * dlog_decay[i]) * sigmoid(z) : W(0);
  }
  // dx
  __device__ void operator()(int64_t i) const { dx[i] = narrow<T>(slope(i)); }
  // The sums of a head, a row each.
  template <class Team>
  __device__ void operator()(const Team& team, int64_t h) const {
    W rate_sum = 0, bias_sum = 0;
    team.each(rows, [&](int64_t row) {
      const int64_t i = row * H + h;
      rate_sum -= dlog_decay[i] * exp(log_rate[h]) * range.clamp(step_of(widen(x[i]) + bias[h]));
      bias_sum += slope(i);
    });
    rate_sum = team.sum(rate_sum);
    bias_sum = team.sum(bias_sum);
    if (team.rank != 0) return;
    dlog_rate[h] = rate_sum;
    dbias[h] = bias_sum;
  }
};

}  // namespace

// x [R, H], log_rate [H], bias [H] -> step, log_decay [R, H]
Result<PreparedKernel> prepare_step_decay(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const StepRange<W> range(spec);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, rows.count * rows.cols,
                                      StepDecay<T>{args.in<T>(0), args.in<W>(1), args.in<W>(2), args.out<W>(0),
                                                   args.out<W>(1), rows.cols, range});
                        }));
  });
}

// dstep, dlog_decay, x [R, H], log_rate [H], bias [H] -> dx [R, H], dlog_rate [H], dbias [H]
Result<PreparedKernel> prepare_step_decay_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(2), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(2));
    const StepRange<W> range(spec);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          const StepDecayGrad<T> grad{args.in<W>(0), args.in<W>(1), args.in<T>(2), args.in<W>(3),
                                                      args.in<W>(4), args.out<T>(0), args.out<W>(1), args.out<W>(2),
                                                      rows.count, rows.cols, range};
                          launch_each(args.stream, rows.count * rows.cols, grad);
                          launch_rows(args.stream, rows.cols, rows.count, grad);
                        }));
  });
}

}  // namespace tessera::cuda
