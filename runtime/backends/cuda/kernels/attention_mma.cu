// Attention on tensor cores (Dao, "FlashAttention-2", 2023). A block computes 128 queries of a head, a warp
// 16 of them, and streams over tiles of keys; the next tile is loaded while this one is computed. Scores stay
// in registers, where the result of the first matmul is the left operand of the second.
#include "runtime/backends/cuda/kernels/attention_mma.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

constexpr int kKeys = 64;  // of a tile

template <int kD>
constexpr size_t kForwardBytes = size_t{2} * kD*(kMmaRows + 4 * kKeys);

template <class T, int kD>
__global__ void __launch_bounds__(kMmaThreads, kD <= 64 ? 2 : 1)
    attention_mma_kernel(AttentionShape e, AttentionOperands<T> x) {
  extern __shared__ __align__(16) unsigned char shared[];
  T* q_tile = reinterpret_cast<T*>(shared);
  T* k_tiles = q_tile + kMmaRows * kD;
  T* v_tiles = k_tiles + 2 * kKeys * kD;

  // Later queries see more keys: they begin first.
  const int64_t tiles = (e.T + kMmaRows - 1) / kMmaRows;
  const int64_t t0 = (tiles - 1 - blockIdx.x % tiles) * kMmaRows, bh = blockIdx.x / tiles;
  const int64_t b = bh / e.H, h = bh % e.H, kv = h / e.group();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, D = static_cast<int>(e.D);
  const int64_t t_last = t0 + kMmaRows < e.T ? t0 + kMmaRows - 1 : e.T - 1;
  const int most_keys = static_cast<int>(e.keys_of(t_last));
  const int64_t row[2] = {t0 + warp * 16 + lane / 4, t0 + warp * 16 + lane / 4 + 8};
  const int keys[2] = {row[0] < e.T ? static_cast<int>(e.keys_of(row[0])) : 0,
                       row[1] < e.T ? static_cast<int>(e.keys_of(row[1])) : 0};
  // Keys that every query of the warp sees; queries beyond T do not matter.
  const int64_t warp_first = t0 + warp * 16;
  const int least_keys = warp_first < e.T ? static_cast<int>(e.keys_of(warp_first)) : most_keys;
  const float scale = static_cast<float>(e.scale) * kLog2E;

  const T *k = x.k + e.key(b, 0, kv), *v = x.v + e.key(b, 0, kv);
  load_rows<T, kD, kMmaRows>(q_tile, x.q + e.query(b, 0, h), t0, e.T, e.H * e.D, D);
  load_rows<T, kD, kKeys>(k_tiles, k, 0, most_keys, e.KV * e.D, D);
  load_rows<T, kD, kKeys>(v_tiles, v, 0, most_keys, e.KV * e.D, D);
  copy_async_commit();

  uint32_t q[kD / 16][4];
  float out[kD / 8][4] = {};
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
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
    if (step == 0)
#pragma unroll
      for (int i = 0; i < kD / 16; ++i) load_left<T, kD>(q[i], q_tile, warp * 16, i);

    float p[kKeys / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) multiply_by_rows<T, kD, kKeys>(p, q[i], k_tile, i);
    if (s0 + kKeys > least_keys) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (s0 + n * 8 + lane % 4 * 2 + i % 2 >= keys[i / 2]) p[n][i] = -INFINITY;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = top[r];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) most = fmaxf(most, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
      most = quad_max(most);
      const float base = most == -INFINITY ? 0.0f : most * scale;
      const float shrink = exp2f(top[r] * scale - base);
      top[r] = most;
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          p[n][i] = exp2f(p[n][i] * scale - base);
          sum[r] += p[n][i];
        }
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        out[n][2 * r] *= shrink;
        out[n][2 * r + 1] *= shrink;
      }
    }
    multiply_by_tile<T, kD, kKeys>(out, p, v_tile);
  }
  copy_async_wait();  // also where there was no step

  T* at[2];
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = quad_sum(sum[r]);
    const bool there = row[r]<e.T, sees = keys[r]> 0;
    at[r] = there ? x.out + e.query(b, row[r], h) : nullptr;
    factor[r] = sees ? 1 / sum[r] : 0.0f;
    if (there && x.lse != nullptr && lane % 4 == 0)
      x.lse[(b * e.T + row[r]) * e.H + h] =
          sees ? top[r] * static_cast<float>(e.scale) + logf(sum[r]) : -INFINITY;
  }
  store_rows<T, kD>(out, at, factor, D);
}

}  // namespace

// q [B, T, H, D], k, v [B, S, KV, D] -> out [B, T, H, D], lse [B, T, H]
Result<PreparedKernel> prepare_attention_mma(const KernelSpec& spec) {
  const AttentionShape shape = attention_shape_of_shard(spec, 0, 1, 2);
  TSR_RETURN_IF_ERROR(check_plain(spec, shape, 3));
  return dispatch_mma(spec.input_dtype(0), shape, [&](auto zero, auto width) -> Result<PreparedKernel> {
    using T = decltype(zero);
    constexpr int kD = decltype(width)::value;
    const int64_t blocks = shape.B * shape.H * ((shape.T + kMmaRows - 1) / kMmaRows);
    if (blocks >= kMostGrid) return Status(StatusCode::kUnsupported, format("{} blocks", blocks));
    TSR_RETURN_IF_ERROR(allow_shared(attention_mma_kernel<T, kD>, kForwardBytes<kD>));
    TSR_ASSIGN_OR_RETURN(PreparedKernel other, prepare_attention(spec));
    const bool has_lse = spec.output_count() == 2;
    auto launch = [=](const LaunchArgs& args) {
      if (blocks <= 0) return;
      const AttentionOperands<T> x(args, has_lse, false);
      attention_mma_kernel<T, kD>
          <<<static_cast<unsigned>(blocks), kMmaThreads, kForwardBytes<kD>, args.stream>>>(shape, x);
    };
    PreparedKernel prepared =
        memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)));
    prepared.flops =
        (shape.causal ? 2.0 : 4.0) * double(shape.B * shape.T * shape.H) * double(shape.S) * double(shape.D);
    prepared.efficiency = 0.35;  // of dense matmuls, on mma of this size
    return std::move(prepared);
  });
}

}  // namespace tessera::cuda
