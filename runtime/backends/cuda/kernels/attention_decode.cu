// Attention of a few queries over a cache, as decoding makes it: bound by reading keys and values. All
// queries that share a head of keys are the rows of one product on tensor cores; a block takes 128 keys of
// it, a warp 16 of them, and a second kernel puts the blocks' parts together.
#include "runtime/backends/cuda/kernels/attention_mma.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/overlap.cuh"

namespace tessera::cuda {

namespace {

constexpr int kChunk = kMmaRows, kMostQueries = 16;

template <int kD>
constexpr size_t kDecodeBytes = size_t{2} * kD*(2 * kChunk + kMostQueries) +
                                sizeof(float) * 2 * kMmaWarps* kMostQueries;

// Of the queries (t, head of the group) of a head of keys, by block of keys.
struct DecodeParts {
  float *out, *top, *sum;  // [B * KV, blocks, queries (, D)]; top in units of log 2
  int64_t blocks, queries;

  DecodeParts(void* workspace, int64_t groups, int64_t blocks, int64_t queries, int64_t D)
      : out(static_cast<float*>(workspace)),
        top(out + groups * blocks * queries * D),
        sum(top + groups * blocks * queries),
        blocks(blocks),
        queries(queries) {}
  static int64_t bytes(int64_t groups, int64_t blocks, int64_t queries, int64_t D) {
    return groups * blocks * queries * (D + 2) * static_cast<int64_t>(sizeof(float));
  }
};

template <class T, int kD>
__global__ void __launch_bounds__(kMmaThreads)
    decode_kernel(AttentionShape e, AttentionOperands<T> x, DecodeParts parts) {
  let_next_begin();
  wait_for_previous();
  extern __shared__ __align__(16) unsigned char shared[];
  T* k_tile = reinterpret_cast<T*>(shared);
  T* v_tile = k_tile + kChunk * kD;
  T* q_tile = v_tile + kChunk * kD;
  float* tops = reinterpret_cast<float*>(q_tile + kMostQueries * kD);  // [warps, queries]
  float* sums = tops + kMmaWarps * kMostQueries;
  float* outs = reinterpret_cast<float*>(shared);  // [warps, queries, kD], where the tiles were

  const int64_t group = e.group(), bk = blockIdx.x / parts.blocks, block = blockIdx.x % parts.blocks;
  const int64_t b = bk / e.KV, kv = bk % e.KV, s0 = block * kChunk;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, D = static_cast<int>(e.D);
  const int queries = static_cast<int>(parts.queries);
  const int64_t most_keys = e.keys_of(e.T - 1, b, x.start);
  if (s0 >= most_keys) return;  // nobody looks at this part

  load_rows<T, kD, kChunk>(k_tile, x.k + e.key(b, 0, kv), s0, most_keys, e.KV * e.D, D);
  load_rows<T, kD, kChunk>(v_tile, x.v + e.key(b, 0, kv), s0, most_keys, e.KV * e.D, D);
  for (int i = threadIdx.x; i < kMostQueries * kD / 8; i += kMmaThreads) {
    const int row = i / (kD / 8), piece = i % (kD / 8);
    const bool there = row < queries && piece * 8 < D;
    copy_async(q_tile + tile_offset<kD>(row, piece),
               there ? x.q + e.query(b, row / group, kv * group + row % group) + piece * 8 : x.q, there);
  }
  copy_async_commit();
  copy_async_wait();
  __syncthreads();

  const float scale = static_cast<float>(e.scale) * kLog2E;
  float p[2][4] = {}, out[kD / 8][4] = {};
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    uint32_t left[4];
    load_left<T, kD>(left, q_tile, 0, i);
    multiply_by_rows<T, kD, 16>(p, left, k_tile + warp * 16 * kD, i);
  }
  float top[2], sum[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + r * 8;
    const int64_t keys = row < queries ? e.keys_of(row / group, b, x.start) : 0;
    top[r] = -INFINITY;
    sum[r] = 0;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        if (s0 + warp * 16 + n * 8 + lane % 4 * 2 + i % 2 >= keys) p[n][i] = -INFINITY;
        top[r] = fmaxf(top[r], p[n][i]);
      }
    top[r] = quad_max(top[r]) * scale;
    const float base = top[r] == -INFINITY ? 0.0f : top[r];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        p[n][i] = exp2f(p[n][i] * scale - base);
        sum[r] += p[n][i];
      }
    sum[r] = quad_sum(sum[r]);
  }
  multiply_by_tile<T, kD, 16>(out, p, v_tile + warp * 16 * kD);

  __syncthreads();  // the tiles are no longer read
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = warp * kMostQueries + lane / 4 + r * 8;
    if (lane % 4 == 0) {
      tops[at] = top[r];
      sums[at] = sum[r];
    }
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      outs[at * kD + n * 8 + lane % 4 * 2] = out[n][2 * r];
      outs[at * kD + n * 8 + lane % 4 * 2 + 1] = out[n][2 * r + 1];
    }
  }
  __syncthreads();
  const int64_t first = (bk * parts.blocks + block) * parts.queries;
  for (int i = threadIdx.x; i < queries * D; i += kMmaThreads) {
    const int row = i / D, d = i % D;
    float most = -INFINITY, total = 0, value = 0;
#pragma unroll
    for (int w = 0; w < kMmaWarps; ++w) most = fmaxf(most, tops[w * kMostQueries + row]);
    if (most != -INFINITY)
#pragma unroll
      for (int w = 0; w < kMmaWarps; ++w) {
        const float factor = exp2f(tops[w * kMostQueries + row] - most);
        total += factor * sums[w * kMostQueries + row];
        value += factor * outs[(w * kMostQueries + row) * kD + d];
      }
    parts.out[(first + row) * e.D + d] = value;
    if (d == 0) {
      parts.top[first + row] = most;
      parts.sum[first + row] = total;
    }
  }
}

// Row (b, t, h): the parts of its blocks of keys, in order.
template <class T>
struct MergeParts {
  AttentionShape e;
  AttentionOperands<T> x;
  DecodeParts parts;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t h = row % e.H, t = row / e.H % e.T, b = row / e.H / e.T, group = e.group();
    const int64_t keys = e.keys_of(t, b, x.start), blocks = (keys + kChunk - 1) / kChunk;
    const int64_t first = (b * e.KV + h / group) * parts.blocks * parts.queries + t * group + h % group;
    float most = -INFINITY, total = 0;
    for (int64_t block = 0; block < blocks; ++block)
      most = fmaxf(most, parts.top[first + block * parts.queries]);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t at = first + block * parts.queries;
      total += exp2f(parts.top[at] - most) * parts.sum[at];
    }
    team.each(e.D, [&](int64_t d) {
      float value = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t at = first + block * parts.queries;
        value += exp2f(parts.top[at] - most) * parts.out[at * e.D + d];
      }
      x.out[row * e.D + d] = narrow<T>(blocks > 0 ? value / total : 0.0f);
    });
  }
};

constexpr int kMergeRows = 8;
template <class T>
__global__ void __launch_bounds__(32 * kMergeRows) merge_kernel(MergeParts<T> merge, int64_t rows) {
  let_next_begin();
  wait_for_previous();
  const int64_t row = int64_t{blockIdx.x} * kMergeRows + threadIdx.x / 32;
  if (row < rows) merge(Team<32>{static_cast<int>(threadIdx.x) % 32}, row);
}

}  // namespace

// q [B, T, H, D], k_cache, v_cache [B, S, KV, D], start [B] -> out [B, T, H, D]
Result<Prepared> prepare_attention_decode(const KernelSpec& spec) {
  AttentionShape shape = attention_shape(spec, 0, 1);
  shape.t_index = FactorIndex(spec.factor('t'));
  return dispatch_mma(spec.input_dtype(0), shape, [&](auto zero, auto width) -> Result<Prepared> {
    using T = decltype(zero);
    constexpr int kD = decltype(width)::value;
    const int64_t queries = shape.T * shape.group(), groups = shape.B * shape.KV;
    if (queries < 1 || queries > kMostQueries || shape.H == 0)
      return Status(StatusCode::kUnsupported,
                    format("{} queries a head of keys, 1 to {}", queries, kMostQueries));
    const int64_t blocks = (shape.S + kChunk - 1) / kChunk;
    if (groups * blocks >= kMostGrid)
      return Status(StatusCode::kUnsupported, format("{} blocks", groups * blocks));
    TSR_RETURN_IF_ERROR(allow_shared(decode_kernel<T, kD>, kDecodeBytes<kD>));
    TSR_ASSIGN_OR_RETURN(Prepared other, prepare_attention_cached(spec));
    auto launch = [=](const LaunchArgs& args) {
      const AttentionOperands<T> x{args.in<T>(0),       args.in<T>(1),  args.in<T>(2),
                                   args.in<int32_t>(3), args.out<T>(0), nullptr};
      const DecodeParts parts(args.workspace, groups, blocks, queries, shape.D);
      if (groups * blocks > 0)
        launch_overlapping(decode_kernel<T, kD>, static_cast<unsigned>(groups * blocks), kMmaThreads,
                           kDecodeBytes<kD>, args, shape, x, parts);
      const int64_t rows = shape.B * shape.T * shape.H;
      if (rows > 0)
        launch_overlapping(merge_kernel<T>, static_cast<unsigned>((rows + kMergeRows - 1) / kMergeRows),
                           32 * kMergeRows, 0, args, MergeParts<T>{shape, x, parts}, rows);
    };
    return memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)),
                        DecodeParts::bytes(groups, blocks, queries, shape.D));
  });
}

}  // namespace tessera::cuda
