// Attention and its gradient a row at a time, for heads too wide for tiles: a warp computes one query's output (or, in the
// backward pass, the gradient of one query or key), looping over the keys (or queries) it attends with. Nothing is
// kept in shared memory. Sums are in f32 (f64 for f64), and no two warps write to one place, so that sums have one order.
#include "runtime/backends/cuda/kernels/attention_grad.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

constexpr int64_t kWidestHead = 512;
constexpr double kRowEfficiency = 0.01;  // of the tensor cores' peak, which plain cores cannot reach

// A lane's columns of a row, every 32nd; 0 beyond the row's width.
template <class W>
struct LaneColumns {
  static constexpr int kCount = kWidestHead / 32;
  W at[kCount] = {};

  __device__ LaneColumns() {}
  template <class T>
  __device__ LaneColumns(int lane, const T* row, int64_t width) {
#pragma unroll
    for (int c = 0; c < kCount; ++c)
      if (c * 32 + lane < width) at[c] = widen(row[c * 32 + lane]);
  }
  __device__ W dot(const LaneColumns& other) const {
    W sum = 0;
#pragma unroll
    for (int c = 0; c < kCount; ++c) sum += at[c] * other.at[c];
    return sum;
  }
  __device__ void multiply(W factor) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) at[c] *= factor;
  }
  __device__ void add(W weight, const LaneColumns& other) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) at[c] += weight * other.at[c];
  }
  template <class T>
  __device__ void store(int lane, T* row, int64_t width, W factor) const {
#pragma unroll
    for (int c = 0; c < kCount; ++c)
      if (c * 32 + lane < width) row[c * 32 + lane] = narrow<T>(at[c] * factor);
  }
};

// Row number `row` of [B, heads, count]: adjacent warps have adjacent positions of one head, and read the same rows.
struct HeadPosition {
  int64_t b, head, position;
  __device__ HeadPosition(int64_t row, int64_t heads, int64_t count)
      : b(row / count / heads), head(row / count % heads), position(row % count) {}
};

// Whether query t and key s are of one document.
template <class Operands>
__device__ bool share_segment(const AttentionShape& e, const Operands& x, int64_t b, int64_t t, int64_t s) {
  return x.q_segment == nullptr || x.q_segment[b * e.T + t] == x.k_segment[b * e.S + s];
}

template <class T>
struct QueryRow {
  using W = Wide<T>;
  AttentionShape e;
  AttentionOperands<T> x;

  __device__ void operator()(const Team<32>& team, int64_t row) const {
    const auto [b, h, t] = HeadPosition(row, e.H, e.T);
    const int64_t kv = h / e.group(), end = e.end_of(t);
    const LaneColumns<W> q(team.rank, x.q + e.query(b, t, h), e.D);
    LaneColumns<W> out;
    W top = minus_infinity<W>(), sum = 0;
    for (int64_t s = e.first_of(t); s < end; ++s) {
      if (!share_segment(e, x, b, t, s)) continue;
      const LaneColumns<W> k(team.rank, x.k + e.key(b, s, kv), e.D), v(team.rank, x.v + e.value(b, s, kv), e.V);
      const W score = e.capped(team.sum(q.dot(k)) * static_cast<W>(e.scale)), new_top = Larger{}(top, score);
      if (new_top == minus_infinity<W>()) continue;
      const W shrink = top == minus_infinity<W>() ? W(0) : exp(top - new_top), p = exp(score - new_top);
      sum = sum * shrink + p;
      top = new_top;
      out.multiply(shrink);
      out.add(p, v);
    }
    const bool sees = top != minus_infinity<W>();
    out.store(team.rank, x.out + e.result(b, t, h), e.V, sees ? W(1) / sum : W(0));
    if (x.lse != nullptr && team.rank == 0)
      x.lse[(b * e.T + t) * e.H + h] = sees ? top + log(sum) : minus_infinity<W>();
  }
};

// Weight of a pair of query and key, and the gradient of its score.
template <class W>
struct PairGrad {
  W p, ds;
  // `row`: index of (b, t, h) in lse and delta.
  template <class T>
  __device__ PairGrad(const AttentionShape& e, const AttentionGradOperands<T>& x, const Team<32>& team, int64_t row,
                      const LaneColumns<W>& q, const LaneColumns<W>& k, const LaneColumns<W>& dout,
                      const LaneColumns<W>& v) {
    const W score = e.capped(team.sum(q.dot(k)) * static_cast<W>(e.scale));
    p = exp(score - x.lse[row]);
    ds = p * e.slope(score) * (team.sum(dout.dot(v)) - x.delta[row]);
  }
};

template <class T>
struct QueryGradRow {
  using W = Wide<T>;
  AttentionShape e;
  AttentionGradOperands<T> x;

  __device__ void operator()(const Team<32>& team, int64_t row) const {
    const auto [b, h, t] = HeadPosition(row, e.H, e.T);
    const int64_t kv = h / e.group(), end = e.end_of(t);
    const LaneColumns<W> q(team.rank, x.q + e.query(b, t, h), e.D), dout(team.rank, x.dout + e.result(b, t, h), e.V);
    LaneColumns<W> dq;
    for (int64_t s = e.first_of(t); s < end; ++s) {
      if (!share_segment(e, x, b, t, s)) continue;
      const LaneColumns<W> k(team.rank, x.k + e.key(b, s, kv), e.D), v(team.rank, x.v + e.value(b, s, kv), e.V);
      dq.add(PairGrad<W>(e, x, team, (b * e.T + t) * e.H + h, q, k, dout, v).ds, k);
    }
    dq.store(team.rank, x.dq + e.query(b, t, h), e.D, static_cast<W>(e.scale));
  }
};

template <class T>
struct KeyGradRow {
  using W = Wide<T>;
  AttentionShape e;
  AttentionGradOperands<T> x;

  __device__ void operator()(const Team<32>& team, int64_t row) const {
    const auto [b, kv, s] = HeadPosition(row, e.KV, e.S);
    const LaneColumns<W> k(team.rank, x.k + e.key(b, s, kv), e.D), v(team.rank, x.v + e.value(b, s, kv), e.V);
    LaneColumns<W> dk, dv;
    for (int64_t t = 0; t < e.T; ++t) {
      if (s < e.first_of(t) || s >= e.end_of(t) || !share_segment(e, x, b, t, s)) continue;
      for (int64_t h = kv * e.group(); h < (kv + 1) * e.group(); ++h) {
        const LaneColumns<W> q(team.rank, x.q + e.query(b, t, h), e.D),
            dout(team.rank, x.dout + e.result(b, t, h), e.V);
        const PairGrad<W> pair(e, x, team, (b * e.T + t) * e.H + h, q, k, dout, v);
        dk.add(pair.ds, q);
        dv.add(pair.p, dout);
      }
    }
    dk.store(team.rank, x.dk + e.key(b, s, kv), e.D, static_cast<W>(e.scale));
    dv.store(team.rank, x.dv + e.value(b, s, kv), e.V, W(1));
  }
};

}  // namespace

// q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V] (, q_segment [B, T], k_segment [B, S]) -> out [B, T, H, V],
// lse [B, T, H]
Result<PreparedKernel> prepare_attention_rows(const KernelSpec& spec) {
  const AttentionShape shape = attention_shape_of_shard(spec, 0, 1, 2);
  TSR_RETURN_IF_ERROR(check_head(shape, kWidestHead));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t queries = shape.B * shape.T * shape.H;
    const bool has_lse = spec.output_count() == 2, has_segments = spec.input_count() == 5;
    PreparedKernel prepared = memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                                             launch_teams<32>(args.stream, queries,
                                                              QueryRow<T>{shape, {args, has_lse, has_segments}});
                                           }));
    prepared.flops = (shape.causal ? 2.0 : 4.0) * double(queries) * double(shape.S * shape.D);
    prepared.efficiency = kRowEfficiency;
    return std::move(prepared);
  });
}

// dout [B, T, H, V], q, k, v, out, lse (, q_segment, k_segment) (, dlse) -> dq, dk, dv
Result<PreparedKernel> prepare_attention_grad_rows(const KernelSpec& spec) {
  const AttentionShape shape = attention_shape_of_shard(spec, 1, 2, 3);
  TSR_RETURN_IF_ERROR(check_head(shape, kWidestHead));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t queries = shape.B * shape.T * shape.H, keys = shape.B * shape.S * shape.KV;
    const int count = spec.input_count();
    PreparedKernel prepared = memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          const AttentionGradOperands<T> x(args, count);
          launch_rows(args.stream, queries, shape.V, AttentionDelta<T>{x, shape.V});
          launch_teams<32>(args.stream, queries, QueryGradRow<T>{shape, x});
          launch_teams<32>(args.stream, keys, KeyGradRow<T>{shape, x});
        }),
        queries * static_cast<int64_t>(sizeof(Wide<T>)));
    prepared.flops = (shape.causal ? 7.0 : 14.0) * double(queries) * double(shape.S * shape.D);
    prepared.efficiency = kRowEfficiency;
    return std::move(prepared);
  });
}

}  // namespace tessera::cuda
