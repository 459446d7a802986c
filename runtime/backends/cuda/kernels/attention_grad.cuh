// Shared by the kernels of attention's gradient.
#pragma once

#include "runtime/backends/cuda/kernels/attention.cuh"

namespace tessera::cuda {

// dout [B, T, H, V], q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V], out [B, T, H, V], lse [B, T, H]
// (, q_segment [B, T], k_segment [B, S]) (, dlse [B, T, H]) -> dq, dk, dv
template <class T>
struct AttentionGradOperands {
  const T *dout, *q, *k, *v, *out;
  const Wide<T>*lse, *dlse;              // dlse may be null
  const int32_t *q_segment, *k_segment;  // both may be null
  T *dq, *dk, *dv;
  Wide<T>* delta;  // [B, T, H], the workspace

  AttentionGradOperands(const LaunchArgs& args, int count)
      : dout(args.in<T>(0)),
        q(args.in<T>(1)),
        k(args.in<T>(2)),
        v(args.in<T>(3)),
        out(args.in<T>(4)),
        lse(args.in<Wide<T>>(5)),
        dlse(count % 2 == 1 ? args.in<Wide<T>>(count - 1) : nullptr),
        q_segment(count >= 8 ? args.in<int32_t>(6) : nullptr),
        k_segment(count >= 8 ? args.in<int32_t>(7) : nullptr),
        dq(args.out<T>(0)),
        dk(args.out<T>(1)),
        dv(args.out<T>(2)),
        delta(static_cast<Wide<T>*>(args.workspace)) {}
};

// delta = sum over V of dout out, less dlse, a row a query and head.
template <class T>
struct AttentionDelta {
  AttentionGradOperands<T> x;
  int64_t V;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    Wide<T> sum = 0;
    team.each(V, [&](int64_t d) { sum += widen(x.dout[row * V + d]) * widen(x.out[row * V + d]); });
    sum = team.sum(sum);
    if (team.rank == 0) x.delta[row] = x.dlse == nullptr ? sum : sum - x.dlse[row];
  }
};

}  // namespace tessera::cuda
