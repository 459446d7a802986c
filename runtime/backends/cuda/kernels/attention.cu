// Attention that streams over tiles of keys with a running maximum and sum (Dao et al., "FlashAttention",
// NeurIPS 2022): nothing of extent T x S is stored. A block computes 32 queries of a head; a warp has 4 of
// them, a lane one key of the tile at a time and every 32nd column of the output. Sums are in f32 (f64 for
// f64) on the plain cores.
#include "runtime/backends/cuda/kernels/attention.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

template <class W>
__device__ W warp_max(W value) {
  return Team<32>{0}.reduce(value, Larger{});
}
template <class W>
__device__ W warp_sum(W value) {
  return Team<32>{0}.reduce(value, Plus{});
}

template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_kernel(AttentionShape e, AttentionOperands<T> x) {
  using W = Wide<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  const int D = static_cast<int>(e.D), pitch = D + 1;
  const int width = static_cast<int>(e.V), v_pitch = width + 1;
  W* q_tile = reinterpret_cast<W*>(shared);
  W* k_tile = q_tile + kAttentionTile * pitch;
  W* v_tile = k_tile + kAttentionTile * pitch;

  const int64_t tiles = (e.T + kAttentionTile - 1) / kAttentionTile;
  const int64_t t0 = blockIdx.x % tiles * kAttentionTile, bh = blockIdx.x / tiles;
  const int64_t b = bh / e.H, h = bh % e.H, kv = h / e.group();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const W scale = static_cast<W>(e.scale);

  // Queries of this warp: 4 adjacent rows of the tile.
  int64_t keys[kRowsPerWarp], first[kRowsPerWarp];
  int32_t segment[kRowsPerWarp] = {};
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t t = t0 + warp * kRowsPerWarp + r;
    keys[r] = e.end_of(t);
    first[r] = e.first_of(t);
    if (x.q_segment != nullptr && t < e.T) segment[r] = x.q_segment[b * e.T + t];
  }
  // Positions ascend, so the last query of the block sees the most, and the first one the first key.
  const int64_t most_keys =
      e.end_of(t0 + kAttentionTile < e.T ? t0 + kAttentionTile - 1 : e.T - 1);
  const int64_t least_key = e.first_of(t0);

  load_tile(q_tile, x.q + e.query(b, 0, h), t0, e.T, e.H * e.D, e.D);
  W acc[kRowsPerWarp][kColumnsPerLane] = {};
  W top[kRowsPerWarp], sum[kRowsPerWarp];
  for (int r = 0; r < kRowsPerWarp; ++r) {
    top[r] = minus_infinity<W>();
    sum[r] = 0;
  }

  for (int64_t s0 = least_key / kAttentionTile * kAttentionTile; s0 < most_keys; s0 += kAttentionTile) {
    __syncthreads();  // the last tile has been used by all
    load_tile(k_tile, x.k + e.key(b, 0, kv), s0, e.S, e.KV * e.D, e.D);
    load_tile(v_tile, x.v + e.value(b, 0, kv), s0, e.S, e.KV * e.V, e.V);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      if (s0 >= keys[r] || s0 + kAttentionTile <= first[r]) continue;  // the same for all lanes
      bool sees = s0 + lane < keys[r] && s0 + lane >= first[r];
      if (x.k_segment != nullptr && sees) sees = x.k_segment[b * e.S + s0 + lane] == segment[r];
      W score = row_dot(q_tile + (warp * kRowsPerWarp + r) * pitch, k_tile + lane * pitch, D) * scale;
      score = sees ? e.capped(score) : minus_infinity<W>();
      const W new_top = Larger{}(top[r], warp_max(score));
      if (new_top == minus_infinity<W>()) continue;  // nothing of another document
      const W shrink = top[r] == minus_infinity<W>() ? W(0) : exp(top[r] - new_top);
      const W p = sees ? exp(score - new_top) : W(0);
      sum[r] = sum[r] * shrink + warp_sum(p);
      top[r] = new_top;
#pragma unroll
      for (int c = 0; c < kColumnsPerLane; ++c) acc[r][c] *= shrink;
      for (int key = 0; key < kAttentionTile; ++key) {
        const W weight = __shfl_sync(0xffffffffu, p, key);
#pragma unroll
        for (int c = 0; c < kColumnsPerLane; ++c)
          if (c * 32 + lane < width) acc[r][c] += weight * v_tile[key * v_pitch + c * 32 + lane];
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t t = t0 + warp * kRowsPerWarp + r;
    if (t >= e.T) continue;
    T* out = x.out + e.result(b, t, h);
    const bool sees = top[r] != minus_infinity<W>();
#pragma unroll
    for (int c = 0; c < kColumnsPerLane; ++c)
      if (c * 32 + lane < width) out[c * 32 + lane] = narrow<T>(sees ? acc[r][c] / sum[r] : W(0));
    if (x.lse != nullptr && lane == 0)
      x.lse[(b * e.T + t) * e.H + h] = sees ? top[r] + log(sum[r]) : minus_infinity<W>();
  }
}

template <class T>
struct Merge {
  using W = Wide<T>;
  const T *out_a, *out_b;
  const W *lse_a, *lse_b;
  T* out;
  W* lse;
  int64_t D;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const W a = lse_a[row], b = lse_b[row], top = Larger{}(a, b);
    const bool none = top == minus_infinity<W>();
    const W both = none ? top : top + log(exp(a - top) + exp(b - top));
    const W of_a = none ? W(0) : exp(a - both), of_b = none ? W(0) : exp(b - both);
    team.each(D, [&](int64_t d) {
      out[row * D + d] = narrow<T>(of_a * widen(out_a[row * D + d]) + of_b * widen(out_b[row * D + d]));
    });
    // lse may take over the memory of an operand, which the other threads of the row still read.
    (void)team.max(W(0));
    if (team.rank == 0) lse[row] = both;
  }
};

}  // namespace

// q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V] (, q_segment [B, T], k_segment [B, S]) -> out [B, T, H, V],
// lse [B, T, H]
Result<PreparedKernel> prepare_attention(const KernelSpec& spec) {
  const AttentionShape shape = attention_shape_of_shard(spec, 0, 1, 2);
  TSR_RETURN_IF_ERROR(check_head(shape, kMostHead));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t blocks = shape.B * shape.H * ((shape.T + kAttentionTile - 1) / kAttentionTile);
    if (blocks >= kMostGrid) return Status(StatusCode::kUnsupported, format("{} blocks", blocks));
    const size_t bytes = tile_bytes<W>(shape, 2, 1);
    TSR_RETURN_IF_ERROR(allow_shared(attention_kernel<T>, bytes));
    const bool has_lse = spec.output_count() == 2, has_segments = spec.input_count() == 5;
    PreparedKernel prepared = memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          if (blocks <= 0) return;
          const AttentionOperands<T> x(args, has_lse, has_segments);
          attention_kernel<T>
              <<<static_cast<unsigned>(blocks), kAttentionThreads, bytes, args.stream>>>(shape, x);
        }));
    prepared.flops =
        (shape.causal ? 2.0 : 4.0) * double(shape.B * shape.T * shape.H) * double(shape.S * shape.D);
    prepared.efficiency = 0.02;  // of the tensor cores' peak, which plain cores cannot reach
    return std::move(prepared);
  });
}

// out_a [B, T, H, V], lse_a [B, T, H], out_b, lse_b -> out, lse
Result<PreparedKernel> prepare_attention_merge(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1] * dims[2], D = dims[3];
    return by_rows(spec, rows, D, [=](const LaunchArgs& args) {
      return Merge<T>{
          args.in<T>(0), args.in<T>(2), args.in<W>(1), args.in<W>(3), args.out<T>(0), args.out<W>(1), D};
    });
  });
}

}  // namespace tessera::cuda
