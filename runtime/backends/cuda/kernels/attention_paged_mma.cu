// Attention of many tokens over pages, on tensor cores: the tiles of attention_mma.cu. A block computes 128 tokens of a
// head. Tokens of one sequence that follow one another are a run; the block streams over the keys of one run after the
// other, and tokens of other runs see none of them. For tables of few sequences: there are few runs.
#include <utility>

#include "runtime/backends/cuda/kernels/attention_mma.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/paged_tokens.cuh"

namespace tessera::cuda {

namespace {

constexpr int kPagedKeys = 64;           // of a tile; pages are a multiple, so that a tile is in one
constexpr int64_t kMostSequences = 4;

template <int kD>
constexpr size_t kPagedBytes = size_t{2} * kD*(kMmaRows + 4 * kPagedKeys);

template <class T>
struct PagedTiles {
  const T *q, *k, *v;
  T* out;
  float* lse;  // null where nobody wants it
  PagedTokens tokens;
};

// Run: tokens [begin, end) of one sequence, and the keys [first, most) that any of them sees.
struct TokenRun {
  int64_t begin, end, first, most;

  // The run that begins with token `begin`, at most up to `last`.
  __device__ static TokenRun at(const PagedTokens& tokens, int64_t begin, int64_t last, int64_t window) {
    TokenRun run{begin, begin, 0, 0};
    for (; run.end < last && tokens.row[run.end] == tokens.row[begin]; ++run.end) {
      int64_t first = 0;
      const int64_t keys = tokens.keys(run.end, window, first);
      if (keys <= first) continue;
      if (run.most == 0 || first < run.first) run.first = first;
      if (keys > run.most) run.most = keys;
    }
    return run;
  }
};

template <class T, int kD>
__global__ void __launch_bounds__(kMmaThreads, kD <= 64 ? 2 : 1)
    attention_paged_mma_kernel(AttentionShape e, PagedTiles<T> x) {
  extern __shared__ __align__(16) unsigned char shared[];
  T* q_tile = reinterpret_cast<T*>(shared);
  T* k_tiles = q_tile + kMmaRows * kD;
  T* v_tiles = k_tiles + 2 * kPagedKeys * kD;

  // Later tokens see more keys: they begin first.
  const int64_t tiles = (e.T + kMmaRows - 1) / kMmaRows;
  const int64_t t0 = (tiles - 1 - blockIdx.x % tiles) * kMmaRows, h = blockIdx.x / tiles, kv = h / e.group();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, D = static_cast<int>(e.D);
  const int64_t t_end = t0 + kMmaRows < e.T ? t0 + kMmaRows : e.T;
  const int64_t row[2] = {t0 + warp * 16 + lane / 4, t0 + warp * 16 + lane / 4 + 8};
  const float scale = static_cast<float>(e.scale) * kLog2E;

  load_rows<T, kD, kMmaRows>(q_tile, x.q + e.query(0, 0, h), t0, e.T, e.H * e.D, D);
  copy_async_commit();
  copy_async_wait();
  __syncthreads();
  uint32_t q[kD / 16][4];
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) load_left<T, kD>(q[i], q_tile, warp * 16, i);

  float out[kD / 8][4] = {};
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int64_t begin = t0; begin < t_end;) {
    const TokenRun run = TokenRun::at(x.tokens, begin, t_end, e.window);
    begin = run.end;
    int64_t first[2] = {0, 0}, keys[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (row[r] >= run.begin && row[r] < run.end) keys[r] = x.tokens.keys(row[r], e.window, first[r]);
    const bool is_idle = __ballot_sync(0xffffffffu, keys[0] > 0 || keys[1] > 0) == 0;  // the warp, in this run

    const int64_t s_first = run.first / kPagedKeys * kPagedKeys;
    const auto load = [&](int64_t s0, int buffer) {
      const int64_t slot = x.tokens.slot(run.begin, s0);
      const int64_t count = slot < 0 ? 0 : run.most - s0, at = slot < 0 ? 0 : (slot * e.KV + kv) * e.D;
      load_rows<T, kD, kPagedKeys>(k_tiles + buffer * kPagedKeys * kD, x.k + at, 0, count, e.KV * e.D, D);
      load_rows<T, kD, kPagedKeys>(v_tiles + buffer * kPagedKeys * kD, x.v + at, 0, count, e.KV * e.D, D);
      copy_async_commit();
    };
    __syncthreads();  // tiles of the run before are no longer read
    if (s_first < run.most) load(s_first, 0);
    int buffer = 0;
    for (int64_t s0 = s_first; s0 < run.most; s0 += kPagedKeys, buffer ^= 1) {
      copy_async_wait();
      __syncthreads();  // this tile has arrived, and the one before it is no longer read
      if (s0 + kPagedKeys < run.most) load(s0 + kPagedKeys, buffer ^ 1);
      if (is_idle || x.tokens.slot(run.begin, s0) < 0) continue;
      const T *k_tile = k_tiles + buffer * kPagedKeys * kD, *v_tile = v_tiles + buffer * kPagedKeys * kD;

      float p[kPagedKeys / 8][4] = {};
#pragma unroll
      for (int i = 0; i < kD / 16; ++i) multiply_by_rows<T, kD, kPagedKeys>(p, q[i], k_tile, i);
#pragma unroll
      for (int n = 0; n < kPagedKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t s = s0 + n * 8 + lane % 4 * 2 + i % 2;
          if (s >= keys[i / 2] || s < first[i / 2]) p[n][i] = -INFINITY;
        }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float most = top[r];
#pragma unroll
        for (int n = 0; n < kPagedKeys / 8; ++n) most = fmaxf(most, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
        most = quad_max(most);
        const float base = most == -INFINITY ? 0.0f : most * scale;
        const float shrink = exp2f(top[r] * scale - base);
        top[r] = most;
        sum[r] *= shrink;
#pragma unroll
        for (int n = 0; n < kPagedKeys / 8; ++n)
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
      multiply_by_tile<T, kD, kPagedKeys>(out, p, v_tile);
    }
  }

  T* at[2];
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = quad_sum(sum[r]);
    const bool there = row[r] < e.T, sees = top[r] > -INFINITY;
    at[r] = there ? x.out + e.query(0, row[r], h) : nullptr;
    factor[r] = sees ? 1 / sum[r] : 0.0f;
    if (there && x.lse != nullptr && lane % 4 == 0)
      x.lse[row[r] * e.H + h] = sees ? top[r] * static_cast<float>(e.scale) + logf(sum[r]) : -INFINITY;
  }
  store_rows<T, kD>(out, at, factor, D);
}

}  // namespace

// q [B, T, H, D], k_pages, v_pages [P, S, KV, D], table [R, M], row, position [B, T] -> out [B, T, H, D] (, lse [B, T, H])
Result<PreparedKernel> prepare_attention_paged_mma(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const PagedShape paged, paged_shape(spec));
  const AttentionShape& shape = paged.shape;
  const PagedTokens& tokens = paged.tokens;
  if (tokens.rows > kMostSequences || tokens.page % kPagedKeys != 0)
    return Status(StatusCode::kUnsupported,
                  format("{} sequences, pages of {}: at most {}, and a multiple of {}", tokens.rows, tokens.page,
                         kMostSequences, kPagedKeys));
  return dispatch_mma(spec.input_dtype(0), shape, [&](auto zero, auto width) -> Result<PreparedKernel> {
    using T = decltype(zero);
    constexpr int kD = decltype(width)::value;
    const int64_t blocks = shape.H * ((shape.T + kMmaRows - 1) / kMmaRows);
    if (blocks >= kMostGrid) return Status(StatusCode::kUnsupported, format("{} blocks", blocks));
    TSR_RETURN_IF_ERROR(allow_shared(attention_paged_mma_kernel<T, kD>, kPagedBytes<kD>));
    TSR_ASSIGN_OR_RETURN(PreparedKernel other, prepare_attention_paged(spec));
    const bool has_lse = spec.output_count() == 2;
    auto launch = [=](const LaunchArgs& args) {
      if (blocks <= 0) return;
      PagedTiles<T> x{args.in<T>(0),  args.in<T>(1), args.in<T>(2),
                      args.out<T>(0), has_lse ? args.out<float>(1) : nullptr, tokens.of(args)};
      attention_paged_mma_kernel<T, kD>
          <<<static_cast<unsigned>(blocks), kMmaThreads, kPagedBytes<kD>, args.stream>>>(shape, x);
    };
    PreparedKernel prepared =
        memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)));
    prepared.flops = 2.0 * double(shape.T * shape.H) * double(shape.S) * double(shape.D);
    prepared.efficiency = 0.35;  // of dense matmuls, on mma of this size
    return std::move(prepared);
  });
}

}  // namespace tessera::cuda
