// The gradient of attention on tensor cores, in three kernels as in attention_grad.cu: no two blocks write to
// one place, so that sums have one order. Scores are therefore computed twice, 7 matmuls instead of 5,
// without atomics.
#include "runtime/backends/cuda/kernels/attention_grad.cuh"
#include "runtime/backends/cuda/kernels/attention_mma.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

// Rows of the streamed tiles: as many as registers allow.
template <int kD>
constexpr int kStreamed = kD <= 64 ? 64 : 32;
// Shared memory: two tiles that stay, two double-buffered tiles, and the statistics of each query.
template <int kD>
constexpr size_t kTileBytes = size_t{2} * kD*(2 * kMmaRows + 4 * kStreamed<kD>);
template <int kD>
constexpr size_t kKeyGradBytes = kTileBytes<kD> + size_t{2} * 3 * 4 * kStreamed<kD>;

// 128 queries of a head, over tiles of keys: ds = p (dout v^T - delta), dq = scale ds k.
template <class T, int kD>
__global__ void __launch_bounds__(kMmaThreads)
    query_grad_mma_kernel(AttentionShape e, AttentionGradOperands<T> x) {
  constexpr int kKeys = kStreamed<kD>;
  extern __shared__ __align__(16) unsigned char shared[];
  T* q_tile = reinterpret_cast<T*>(shared);
  T* do_tile = q_tile + kMmaRows * kD;
  T* k_tiles = do_tile + kMmaRows * kD;
  T* v_tiles = k_tiles + 2 * kKeys * kD;

  const int64_t tiles = (e.T + kMmaRows - 1) / kMmaRows;
  const int64_t t0 = (tiles - 1 - blockIdx.x % tiles) * kMmaRows, bh = blockIdx.x / tiles;
  const int64_t b = bh / e.H, h = bh % e.H, kv = h / e.group();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, D = static_cast<int>(e.D);
  const int most_keys = static_cast<int>(e.keys_of(t0 + kMmaRows < e.T ? t0 + kMmaRows - 1 : e.T - 1));
  const float scale = static_cast<float>(e.scale);
  int keys[2];
  float lse[2], delta[2];
  T* at[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t t = t0 + warp * 16 + lane / 4 + r * 8, row = (b * e.T + t) * e.H + h;
    const bool there = t < e.T;
    keys[r] = there ? static_cast<int>(e.keys_of(t)) : 0;
    lse[r] = there ? x.lse[row] * kLog2E : 0.0f;
    delta[r] = there ? x.delta[row] : 0.0f;
    at[r] = there ? x.dq + e.query(b, t, h) : nullptr;
  }

  const T *k = x.k + e.key(b, 0, kv), *v = x.v + e.key(b, 0, kv);
  load_rows<T, kD, kMmaRows>(q_tile, x.q + e.query(b, 0, h), t0, e.T, e.H * e.D, D);
  load_rows<T, kD, kMmaRows>(do_tile, x.dout + e.query(b, 0, h), t0, e.T, e.H * e.D, D);
  load_rows<T, kD, kKeys>(k_tiles, k, 0, most_keys, e.KV * e.D, D);
  load_rows<T, kD, kKeys>(v_tiles, v, 0, most_keys, e.KV * e.D, D);
  copy_async_commit();

  float dq[kD / 8][4] = {};
  const int steps = (most_keys + kKeys - 1) / kKeys;
  for (int step = 0; step < steps; ++step) {
    const int s0 = step * kKeys;
    copy_async_wait();
    __syncthreads();  // this tile has arrived, and the one before it is no longer read
    if (step + 1 < steps) {
      const int next = (step + 1) % 2 * kKeys * kD;
      load_rows<T, kD, kKeys>(k_tiles + next, k, s0 + kKeys, most_keys, e.KV * e.D, D);
      load_rows<T, kD, kKeys>(v_tiles + next, v, s0 + kKeys, most_keys, e.KV * e.D, D);
      copy_async_commit();
    }
    const T *k_tile = k_tiles + step % 2 * kKeys * kD, *v_tile = v_tiles + step % 2 * kKeys * kD;
    float p[kKeys / 8][4] = {}, dp[kKeys / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      uint32_t left[4];
      load_left<T, kD>(left, q_tile, warp * 16, i);
      multiply_by_rows<T, kD, kKeys>(p, left, k_tile, i);
      load_left<T, kD>(left, do_tile, warp * 16, i);
      multiply_by_rows<T, kD, kKeys>(dp, left, v_tile, i);
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool sees = s0 + n * 8 + lane % 4 * 2 + i % 2 < keys[i / 2];
        const float weight = sees ? exp2f(p[n][i] * scale * kLog2E - lse[i / 2]) : 0.0f;
        p[n][i] = weight * (dp[n][i] - delta[i / 2]);
      }
    multiply_by_tile<T, kD, kKeys>(dq, p, k_tile);
  }
  copy_async_wait();
  store_rows<T, kD>(dq, at, {scale, scale}, D);
}

// 128 keys of a key-value head, over tiles of queries of all heads of its group: dv = p^T dout, dk = scale
// ds^T q.
template <class T, int kD>
__global__ void __launch_bounds__(kMmaThreads)
    key_grad_mma_kernel(AttentionShape e, AttentionGradOperands<T> x) {
  constexpr int kQueries = kStreamed<kD>;
  extern __shared__ __align__(16) unsigned char shared[];
  T* k_tile = reinterpret_cast<T*>(shared);
  T* v_tile = k_tile + kMmaRows * kD;
  T* q_tiles = v_tile + kMmaRows * kD;
  T* do_tiles = q_tiles + 2 * kQueries * kD;
  float* lse_tiles = reinterpret_cast<float*>(do_tiles + 2 * kQueries * kD);
  float* delta_tiles = lse_tiles + 2 * kQueries;
  int* keys_tiles = reinterpret_cast<int*>(delta_tiles + 2 * kQueries);

  const int64_t key_tiles = (e.S + kMmaRows - 1) / kMmaRows, query_tiles = (e.T + kQueries - 1) / kQueries;
  const int64_t s0 = blockIdx.x % key_tiles * kMmaRows, bk = blockIdx.x / key_tiles;
  const int64_t b = bk / e.KV, kv = bk % e.KV;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, D = static_cast<int>(e.D);
  const float scale = static_cast<float>(e.scale);

  // Later queries see more keys: skip the first tiles, whose last query sees none of the block's.
  int64_t first = 0;
  for (; first < query_tiles; ++first) {
    const int64_t last = (first + 1) * kQueries;
    if (e.keys_of((last < e.T ? last : e.T) - 1) > s0) break;
  }
  const int64_t steps = (query_tiles - first) * e.group();
  // Step i is tile first + i / group of head i % group.
  const auto load_step = [&](int64_t step) {
    const int64_t t0 = (first + step / e.group()) * kQueries, h = kv * e.group() + step % e.group();
    const int buffer = static_cast<int>(step % 2) * kQueries;
    load_rows<T, kD, kQueries>(q_tiles + buffer * kD, x.q + e.query(b, 0, h), t0, e.T, e.H * e.D, D);
    load_rows<T, kD, kQueries>(do_tiles + buffer * kD, x.dout + e.query(b, 0, h), t0, e.T, e.H * e.D, D);
    copy_async_commit();
    if (threadIdx.x < kQueries) {
      const int64_t t = t0 + threadIdx.x, row = (b * e.T + t) * e.H + h;
      const int at = buffer + static_cast<int>(threadIdx.x);
      lse_tiles[at] = t < e.T ? x.lse[row] * kLog2E : 0.0f;
      delta_tiles[at] = t < e.T ? x.delta[row] : 0.0f;
      keys_tiles[at] = t < e.T ? static_cast<int>(e.keys_of(t)) : 0;
    }
  };

  load_rows<T, kD, kMmaRows>(k_tile, x.k + e.key(b, 0, kv), s0, e.S, e.KV * e.D, D);
  load_rows<T, kD, kMmaRows>(v_tile, x.v + e.key(b, 0, kv), s0, e.S, e.KV * e.D, D);
  if (steps > 0) load_step(0);

  float dk[kD / 8][4] = {}, dv[kD / 8][4] = {};
  for (int64_t step = 0; step < steps; ++step) {
    copy_async_wait();
    __syncthreads();  // this tile has arrived, and the one before it is no longer read
    if (step + 1 < steps) load_step(step + 1);
    const int buffer = static_cast<int>(step % 2) * kQueries;
    const T *q_tile = q_tiles + buffer * kD, *do_tile = do_tiles + buffer * kD;
    // Rows are keys, columns queries.
    float p[kQueries / 8][4] = {}, ds[kQueries / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      uint32_t left[4];
      load_left<T, kD>(left, k_tile, warp * 16, i);
      multiply_by_rows<T, kD, kQueries>(p, left, q_tile, i);
      load_left<T, kD>(left, v_tile, warp * 16, i);
      multiply_by_rows<T, kD, kQueries>(ds, left, do_tile, i);
    }
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = buffer + n * 8 + lane % 4 * 2 + i % 2;
        const int key = static_cast<int>(s0) + warp * 16 + lane / 4 + i / 2 * 8;
        p[n][i] = key < keys_tiles[query] ? exp2f(p[n][i] * scale * kLog2E - lse_tiles[query]) : 0.0f;
        ds[n][i] = p[n][i] * (ds[n][i] - delta_tiles[query]);
      }
    multiply_by_tile<T, kD, kQueries>(dv, p, do_tile);
    multiply_by_tile<T, kD, kQueries>(dk, ds, q_tile);
  }
  copy_async_wait();

  T *dk_at[2], *dv_at[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t s = s0 + warp * 16 + lane / 4 + r * 8;
    dk_at[r] = s < e.S ? x.dk + e.key(b, s, kv) : nullptr;
    dv_at[r] = s < e.S ? x.dv + e.key(b, s, kv) : nullptr;
  }
  store_rows<T, kD>(dk, dk_at, {scale, scale}, D);
  store_rows<T, kD>(dv, dv_at, {1.0f, 1.0f}, D);
}

}  // namespace

// dout, q [B, T, H, D], k, v [B, S, KV, D], out [B, T, H, D], lse [B, T, H] -> dq, dk, dv
Result<PreparedKernel> prepare_attention_grad_mma(const KernelSpec& spec) {
  const AttentionShape shape = attention_shape_of_shard(spec, 1, 2, 3);
  TSR_RETURN_IF_ERROR(check_plain(spec, shape, 6));
  return dispatch_mma(spec.input_dtype(0), shape, [&](auto zero, auto width) -> Result<PreparedKernel> {
    using T = decltype(zero);
    constexpr int kD = decltype(width)::value;
    const int64_t query_blocks = shape.B * shape.H * ((shape.T + kMmaRows - 1) / kMmaRows);
    const int64_t key_blocks = shape.B * shape.KV * ((shape.S + kMmaRows - 1) / kMmaRows);
    if (query_blocks >= kMostGrid || key_blocks >= kMostGrid)
      return Status(StatusCode::kUnsupported, format("{} and {} blocks", query_blocks, key_blocks));
    TSR_RETURN_IF_ERROR(allow_shared(query_grad_mma_kernel<T, kD>, kTileBytes<kD>));
    TSR_RETURN_IF_ERROR(allow_shared(key_grad_mma_kernel<T, kD>, kKeyGradBytes<kD>));
    TSR_ASSIGN_OR_RETURN(PreparedKernel other, prepare_attention_grad(spec));
    const int64_t queries = shape.B * shape.T * shape.H;
    auto launch = [=](const LaunchArgs& args) {
      const AttentionGradOperands<T> x(args, 6);
      launch_rows(args.stream, queries, shape.D, AttentionDelta<T>{x, shape.D});
      if (query_blocks > 0)
        query_grad_mma_kernel<T, kD>
            <<<static_cast<unsigned>(query_blocks), kMmaThreads, kTileBytes<kD>, args.stream>>>(shape, x);
      if (key_blocks > 0)
        key_grad_mma_kernel<T, kD>
            <<<static_cast<unsigned>(key_blocks), kMmaThreads, kKeyGradBytes<kD>, args.stream>>>(shape, x);
    };
    PreparedKernel prepared =
        memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)),
                     queries * static_cast<int64_t>(sizeof(float)));
    prepared.flops = (shape.causal ? 7.0 : 14.0) * double(queries) * double(shape.S) * double(shape.D);
    prepared.efficiency = 0.3;
    return std::move(prepared);
  });
}

}  // namespace tessera::cuda
