// The gradient of attention in three kernels: delta = sum of dout out a query; dq by tiles of queries that
// stream over keys; dk and dv by tiles of keys that stream over queries. Scores are recomputed from lse, and
// no two blocks write to one place, so that sums have one order.
#include "runtime/backends/cuda/kernels/attention_grad.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

// A warp has 4 queries of the block's 32, a lane a key of the tile.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    query_grad_kernel(AttentionShape e, AttentionGradOperands<T> x) {
  using W = Wide<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  const int width = static_cast<int>(e.D), pitch = width + 1;
  const int v_width = static_cast<int>(e.V), v_pitch = v_width + 1;
  W* q_tile = reinterpret_cast<W*>(shared);
  W* k_tile = q_tile + kAttentionTile * pitch;
  W* do_tile = k_tile + kAttentionTile * pitch;
  W* v_tile = do_tile + kAttentionTile * v_pitch;

  const int64_t tiles = (e.T + kAttentionTile - 1) / kAttentionTile;
  const int64_t t0 = blockIdx.x % tiles * kAttentionTile, bh = blockIdx.x / tiles;
  const int64_t b = bh / e.H, h = bh % e.H, kv = h / e.group();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const W scale = static_cast<W>(e.scale);
  const int64_t most_keys = e.end_of(t0 + kAttentionTile < e.T ? t0 + kAttentionTile - 1 : e.T - 1);

  load_tile(q_tile, x.q + e.query(b, 0, h), t0, e.T, e.H * e.D, e.D);
  load_tile(do_tile, x.dout + e.result(b, 0, h), t0, e.T, e.H * e.V, e.V);
  W acc[kRowsPerWarp][kColumnsPerLane] = {};
  int64_t keys[kRowsPerWarp], first[kRowsPerWarp];
  int32_t segment[kRowsPerWarp] = {};
  W lse[kRowsPerWarp], delta[kRowsPerWarp];
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t t = t0 + warp * kRowsPerWarp + r, at = (b * e.T + t) * e.H + h;
    keys[r] = e.end_of(t);
    first[r] = e.first_of(t);
    if (x.q_segment != nullptr && t < e.T) segment[r] = x.q_segment[b * e.T + t];
    lse[r] = t < e.T ? x.lse[at] : W(0);
    delta[r] = t < e.T ? x.delta[at] : W(0);
  }

  for (int64_t s0 = e.first_of(t0) / kAttentionTile * kAttentionTile; s0 < most_keys;
       s0 += kAttentionTile) {
    __syncthreads();
    load_tile(k_tile, x.k + e.key(b, 0, kv), s0, e.S, e.KV * e.D, e.D);
    load_tile(v_tile, x.v + e.value(b, 0, kv), s0, e.S, e.KV * e.V, e.V);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      if (s0 >= keys[r] || s0 + kAttentionTile <= first[r]) continue;  // the same for all lanes
      const int row = warp * kRowsPerWarp + r;
      bool sees = s0 + lane < keys[r] && s0 + lane >= first[r];
      if (x.k_segment != nullptr && sees) sees = x.k_segment[b * e.S + s0 + lane] == segment[r];
      const W score = e.capped(row_dot(q_tile + row * pitch, k_tile + lane * pitch, width) * scale);
      const W p = sees ? exp(score - lse[r]) : W(0);
      const W ds = p * e.slope(score) *
                   (row_dot(do_tile + row * v_pitch, v_tile + lane * v_pitch, v_width) - delta[r]);
      for (int key = 0; key < kAttentionTile; ++key) {
        const W weight = __shfl_sync(0xffffffffu, ds, key);
#pragma unroll
        for (int c = 0; c < kColumnsPerLane; ++c)
          if (c * 32 + lane < width) acc[r][c] += weight * k_tile[key * pitch + c * 32 + lane];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t t = t0 + warp * kRowsPerWarp + r;
    if (t >= e.T) continue;
#pragma unroll
    for (int c = 0; c < kColumnsPerLane; ++c)
      if (c * 32 + lane < width) x.dq[e.query(b, t, h) + c * 32 + lane] = narrow<T>(acc[r][c] * scale);
  }
}

// A warp has 4 keys of the block's 32, a lane a query of the tile. Heads of the group one after the other.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    key_grad_kernel(AttentionShape e, AttentionGradOperands<T> x) {
  using W = Wide<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  const int width = static_cast<int>(e.D), pitch = width + 1;
  const int v_width = static_cast<int>(e.V), v_pitch = v_width + 1;
  W* k_tile = reinterpret_cast<W*>(shared);
  W* q_tile = k_tile + kAttentionTile * pitch;
  W* v_tile = q_tile + kAttentionTile * pitch;
  W* do_tile = v_tile + kAttentionTile * v_pitch;

  const int64_t tiles = (e.S + kAttentionTile - 1) / kAttentionTile;
  const int64_t s0 = blockIdx.x % tiles * kAttentionTile, bk = blockIdx.x / tiles;
  const int64_t b = bk / e.KV, kv = bk % e.KV;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const W scale = static_cast<W>(e.scale);

  load_tile(k_tile, x.k + e.key(b, 0, kv), s0, e.S, e.KV * e.D, e.D);
  load_tile(v_tile, x.v + e.value(b, 0, kv), s0, e.S, e.KV * e.V, e.V);
  W dk[kRowsPerWarp][kColumnsPerLane] = {}, dv[kRowsPerWarp][kColumnsPerLane] = {};

  for (int64_t t0 = 0; t0 < e.T; t0 += kAttentionTile) {
    // The last query of the tile sees the most keys, the first one the first key: skip tiles none of whose
    // queries see keys of the block.
    const int64_t t_last = t0 + kAttentionTile < e.T ? t0 + kAttentionTile - 1 : e.T - 1;
    if (e.end_of(t_last) <= s0 || e.first_of(t0) >= s0 + kAttentionTile) continue;
    const int64_t t = t0 + lane, keys = e.end_of(t), first = e.first_of(t);
    const int32_t segment = x.q_segment != nullptr && t < e.T ? x.q_segment[b * e.T + t] : 0;
    for (int64_t h = kv * e.group(); h < (kv + 1) * e.group(); ++h) {
      __syncthreads();
      load_tile(q_tile, x.q + e.query(b, 0, h), t0, e.T, e.H * e.D, e.D);
      load_tile(do_tile, x.dout + e.result(b, 0, h), t0, e.T, e.H * e.V, e.V);
      __syncthreads();
      const int64_t at = (b * e.T + t) * e.H + h;
      const W lse = t < e.T ? x.lse[at] : W(0), delta = t < e.T ? x.delta[at] : W(0);
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        const int row = warp * kRowsPerWarp + r;
        bool sees = s0 + row < keys && s0 + row >= first;
        if (x.k_segment != nullptr && sees) sees = x.k_segment[b * e.S + s0 + row] == segment;
        const W score = e.capped(row_dot(q_tile + lane * pitch, k_tile + row * pitch, width) * scale);
        const W p = sees ? exp(score - lse) : W(0);
        const W ds = p * e.slope(score) *
                     (row_dot(do_tile + lane * v_pitch, v_tile + row * v_pitch, v_width) - delta);
        for (int query = 0; query < kAttentionTile; ++query) {
          const W of_k = __shfl_sync(0xffffffffu, ds, query), of_v = __shfl_sync(0xffffffffu, p, query);
#pragma unroll
          for (int c = 0; c < kColumnsPerLane; ++c) {
            if (c * 32 + lane < width) dk[r][c] += of_k * q_tile[query * pitch + c * 32 + lane];
            if (c * 32 + lane < v_width) dv[r][c] += of_v * do_tile[query * v_pitch + c * 32 + lane];
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t s = s0 + warp * kRowsPerWarp + r;
    if (s >= e.S) continue;
#pragma unroll
    for (int c = 0; c < kColumnsPerLane; ++c) {
      if (c * 32 + lane < width) x.dk[e.key(b, s, kv) + c * 32 + lane] = narrow<T>(dk[r][c] * scale);
      if (c * 32 + lane < v_width) x.dv[e.value(b, s, kv) + c * 32 + lane] = narrow<T>(dv[r][c]);
    }
  }
}

}  // namespace

Result<PreparedKernel> prepare_attention_grad(const KernelSpec& spec) {
  const AttentionShape shape = attention_shape_of_shard(spec, 1, 2, 3);
  TSR_RETURN_IF_ERROR(check_head(shape, kMostHead));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t query_blocks = shape.B * shape.H * ((shape.T + kAttentionTile - 1) / kAttentionTile);
    const int64_t key_blocks = shape.B * shape.KV * ((shape.S + kAttentionTile - 1) / kAttentionTile);
    if (query_blocks >= kMostGrid || key_blocks >= kMostGrid)
      return Status(StatusCode::kUnsupported, format("{} and {} blocks", query_blocks, key_blocks));
    const size_t bytes = tile_bytes<W>(shape, 2, 2);
    TSR_RETURN_IF_ERROR(allow_shared(query_grad_kernel<T>, bytes));
    TSR_RETURN_IF_ERROR(allow_shared(key_grad_kernel<T>, bytes));
    const int64_t queries = shape.B * shape.T * shape.H;
    const int count = spec.input_count();
    PreparedKernel prepared = memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          const AttentionGradOperands<T> x(args, count);
          launch_rows(args.stream, queries, shape.V, AttentionDelta<T>{x, shape.V});
          if (query_blocks > 0)
            query_grad_kernel<T>
                <<<static_cast<unsigned>(query_blocks), kAttentionThreads, bytes, args.stream>>>(shape, x);
          if (key_blocks > 0)
            key_grad_kernel<T>
                <<<static_cast<unsigned>(key_blocks), kAttentionThreads, bytes, args.stream>>>(shape, x);
        }),
        queries * static_cast<int64_t>(sizeof(W)));
    prepared.flops = (shape.causal ? 7.0 : 14.0) * double(queries) * double(shape.S * shape.D);
    prepared.efficiency = 0.02;
    return std::move(prepared);
  });
}

}  // namespace tessera::cuda
