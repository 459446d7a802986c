// Shared by the kernels of attention's gradient.
#pragma once

#include "runtime/backends/cuda/kernels/attention.cuh"

namespace tessera::cuda {

// dout, q [B, T, H, D], k, v [B, S, KV, D], out [B, T, H, D], lse [B, T, H] -> dq, dk, dv
template <class T>
struct AttentionGradOperands {
  const T *dout, *q, *k, *v, *out;
  const Wide<T>* lse;
  T *dq, *dk, *dv;
  Wide<T>* delta;  // [B, T, H], the workspace

  explicit AttentionGradOperands(const LaunchArgs& args)
      : dout(args.in<T>(0)),
        q(args.in<T>(1)),
        k(args.in<T>(2)),
        v(args.in<T>(3)),
        out(args.in<T>(4)),
        lse(args.in<Wide<T>>(5)),
        dq(args.out<T>(0)),
        dk(args.out<T>(1)),
        dv(args.out<T>(2)),
        delta(static_cast<Wide<T>*>(args.workspace)) {}
};

// delta = sum over D of dout out, a row a query and head.
template <class T>
struct AttentionDelta {
  AttentionGradOperands<T> x;
  int64_t D;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    Wide<T> sum = 0;
    team.each(D, [&](int64_t d) { sum += widen(x.dout[row * D + d]) * widen(x.out[row * D + d]); });
    sum = team.sum(sum);
    if (team.rank == 0) x.delta[row] = sum;
  }
};

}  // namespace tessera::cuda
