#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// Share of a head's result that remains next to its sink.
template <class W>
__device__ W share_of(W lse, W sink) {
  return W(1) / (W(1) + exp(sink - lse));
}

// A row is a query and head.
template <class T>
struct Sink {
  using W = Wide<T>;
  const T* out;
  const W *lse, *sinks;
  T* y;
  int64_t H, V;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const W share = share_of(lse[row], sinks[row % H]);
    team.each(V, [&](int64_t v) { y[row * V + v] = narrow<T>(share * widen(out[row * V + v])); });
  }
};

template <class T>
struct SinkGrad {
  using W = Wide<T>;
  const T *dy, *out;
  const W *lse, *sinks;
  T* dout;
  W* dlse;
  int64_t H, V;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const W share = share_of(lse[row], sinks[row % H]);
    W sum = 0;
    team.each(V, [&](int64_t v) {
      const W d = widen(dy[row * V + v]);
      sum += d * widen(out[row * V + v]);
      dout[row * V + v] = narrow<T>(share * d);
    });
    sum = team.sum(sum);
    if (team.rank == 0) dlse[row] = share * (W(1) - share) * sum;
  }
};

// dsinks of a head, a row each.
template <class W>
struct SinkSum {
  const W* dlse;  // [queries, H]
  W* dsinks;
  int64_t queries, H;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t h) const {
    W sum = 0;
    team.each(queries, [&](int64_t i) { sum += dlse[i * H + h]; });
    sum = team.sum(sum);
    if (team.rank == 0) dsinks[h] = -sum;
  }
};

}  // namespace

// out [B, T, H, V], lse [B, T, H], sinks [H] -> y [B, T, H, V]
Result<PreparedKernel> prepare_attention_sink(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const auto dims = spec.input_dims(0);
    const int64_t H = dims[2], V = dims[3], rows = dims[0] * dims[1] * H;
    return by_rows(spec, rows, V, [=](const LaunchArgs& args) {
      return Sink<T>{args.in<T>(0), args.in<W>(1), args.in<W>(2), args.out<T>(0), H, V};
    });
  });
}

// dy, out [B, T, H, V], lse [B, T, H], sinks [H] -> dout, dlse, dsinks
Result<PreparedKernel> prepare_attention_sink_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const auto dims = spec.input_dims(0);
    const int64_t queries = dims[0] * dims[1], H = dims[2], V = dims[3];
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          launch_rows(args.stream, queries * H, V,
                      SinkGrad<T>{args.in<T>(0), args.in<T>(1), args.in<W>(2), args.in<W>(3), args.out<T>(0),
                                  args.out<W>(1), H, V});
          launch_rows(args.stream, H, queries, SinkSum<W>{args.out<W>(1), args.out<W>(2), queries, H});
        }));
  });
}

}  // namespace tessera::cuda
