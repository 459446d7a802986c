// Attention of a few tokens over pages, for decoding: bound by reading keys and values. The queries of a token that
// share a key-value head are the rows of one matmul on tensor cores. A part is 128 keys of it, a warp takes 16 of them,
// and a second kernel combines the parts. (FlashDecoding, Dao et al. 2023.)
#include <algorithm>

#include "runtime/backends/cuda/kernels/attention_mma.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/overlap.cuh"
#include "runtime/backends/cuda/kernels/paged_tokens.cuh"

namespace tessera::cuda {

namespace {

constexpr int kChunk = kMmaRows, kMostQueries = 16;
constexpr int64_t kMostTokens = 64;  // each reads its keys by itself
// Blocks: two for each of 132 multiprocessors, as many as fit with heads of 128 in the shared memory that
// overlapping launches request (overlap.cc); a block has 64 KB of loads in flight. No sum depends on it. A
// table may have room for many more keys than there are: an empty part costs a comparison, not a block.
constexpr int64_t kDecodeBlocks = 264;

template <int kD>
constexpr size_t kDecodeBytes = size_t{2} * kD*(2 * kChunk + kMostQueries) +
                                sizeof(float) * 2 * kMmaWarps* kMostQueries;

// Operands: keys and values are those of all pages.
template <class T>
struct PagedDecode {
  const T *q, *k, *v;
  T* out;
  PagedTokens tokens;
};

// Partial results of a token's queries of a key-value head, by chunk of keys: part (token and head, chunk, query).
struct DecodeParts {
  float *out, *top, *sum;  // [T * KV, chunks, queries (, D)]; top in units of log 2
  int64_t groups, chunks, queries;

  DecodeParts(void* workspace, int64_t groups, int64_t chunks, int64_t queries, int64_t D)
      : out(static_cast<float*>(workspace)),
        top(out + groups * chunks * queries * D),
        sum(top + groups * chunks * queries),
        groups(groups),
        chunks(chunks),
        queries(queries) {}
  static int64_t bytes(int64_t groups, int64_t chunks, int64_t queries, int64_t D) {
    return groups * chunks * queries * (D + 2) * static_cast<int64_t>(sizeof(float));
  }
};

// Partial sums of exponentials times values of a block's warps, in shared memory. Each is relative to the
// warp's own largest exponent; the total is relative to the largest of all.
struct WarpParts {
  const float *top, *sum, *out;     // of this query or row; out at this column
  int scalar_stride, value_stride;  // from warp to warp

  struct Whole {
    float top = -INFINITY, sum = 0, out = 0;
  };
  __device__ Whole whole() const {
    Whole w;
#pragma unroll
    for (int i = 0; i < kMmaWarps; ++i) w.top = fmaxf(w.top, top[i * scalar_stride]);
    if (w.top == -INFINITY) return w;
#pragma unroll
    for (int i = 0; i < kMmaWarps; ++i) {
      const float factor = exp2f(top[i * scalar_stride] - w.top);
      w.sum += factor * sum[i * scalar_stride];
      w.out += factor * out[i * value_stride];
    }
    return w;
  }
};

// tile[row] <- key first + row of the token's sequence, at this head; zeros from `count` keys on, where a page is missing, and
// beyond D columns. Called by all threads of the block.
template <class T, int kD, int kRows>
__device__ inline void load_keys(T* tile, const T* pages, const PagedTokens& tokens, int64_t token, int first,
                                 int count, int64_t heads, int64_t head, int D) {
  constexpr int kPieces = kD / 8;
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kPieces; i += kMmaThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const int64_t slot = first + row < count && piece * 8 < D ? tokens.slot(token, first + row) : -1;
    copy_async(tile + tile_offset<kD>(row, piece),
               slot >= 0 ? pages + (slot * heads + head) * D + piece * 8 : pages, slot >= 0);
  }
}

// Keys of a token that are seen: those in [begin, end) that have a page.
struct SeenKeys {
  int begin, end;
};

// Computes one part: the token's queries of a key-value head against the chunk's keys. Called by all threads.
template <class T, int kD>
__device__ void decode_part(const AttentionShape& e, const PagedDecode<T>& x, const DecodeParts& parts,
                            uint32_t token_head, uint32_t chunk, SeenKeys seen, unsigned char* shared) {
  T* k_tile = reinterpret_cast<T*>(shared);
  T* v_tile = k_tile + kChunk * kD;
  T* q_tile = v_tile + kChunk * kD;
  float* tops = reinterpret_cast<float*>(q_tile + kMostQueries * kD);  // [warps, queries]
  float* sums = tops + kMmaWarps * kMostQueries;
  float* outs = reinterpret_cast<float*>(shared);  // [warps, queries, kD], where the tiles were

  const uint32_t kv_heads = e.KV, group = static_cast<uint32_t>(e.H) / kv_heads;
  const uint32_t token = token_head / kv_heads, kv = token_head % kv_heads;
  const int s0 = static_cast<int>(chunk) * kChunk;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, D = static_cast<int>(e.D);
  const int queries = static_cast<int>(parts.queries);

  load_keys<T, kD, kChunk>(k_tile, x.k, x.tokens, token, s0, seen.end, e.KV, kv, D);
  load_keys<T, kD, kChunk>(v_tile, x.v, x.tokens, token, s0, seen.end, e.KV, kv, D);
  for (int i = threadIdx.x; i < kMostQueries * kD / 8; i += kMmaThreads) {
    const int row = i / (kD / 8), piece = i % (kD / 8);
    const bool there = row < queries && piece * 8 < D;
    copy_async(q_tile + tile_offset<kD>(row, piece),
               there ? x.q + e.query(0, token, kv * group + row) + piece * 8 : x.q, there);
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
  bool is_seen[2][2];  // of this lane's keys
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int s = s0 + warp * 16 + n * 8 + lane % 4 * 2 + i;
      is_seen[n][i] = s >= seen.begin && s < seen.end && x.tokens.slot(token, s) >= 0;
    }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool is_query = lane / 4 + r * 8 < queries;
    top[r] = -INFINITY;
    sum[r] = 0;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        if (!is_query || !is_seen[n][i % 2]) p[n][i] = -INFINITY;
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
  const int64_t first = (int64_t{token_head} * parts.chunks + chunk) * parts.queries;
  for (int i = threadIdx.x; i < queries * D; i += kMmaThreads) {
    const int row = i / D, d = i % D;
    const auto whole =
        WarpParts{tops + row, sums + row, outs + row * kD + d, kMostQueries, kMostQueries * kD}.whole();
    parts.out[(first + row) * e.D + d] = whole.out;
    if (d == 0) {
      parts.top[first + row] = whole.top;
      parts.sum[first + row] = whole.sum;
    }
  }
}

// Indices of parts, rows and keys fit 32 bits, in which divisions are cheap. Heads alternate fastest, so that
// the parts that hold keys are shared out evenly.
template <class T, int kD>
__global__ void __launch_bounds__(kMmaThreads, 2)
    paged_decode_kernel(AttentionShape e, PagedDecode<T> x, DecodeParts parts) {
  let_next_begin();
  wait_for_previous();
  extern __shared__ __align__(16) unsigned char shared[];
  const uint32_t groups = parts.groups, count = groups * static_cast<uint32_t>(parts.chunks);
  bool is_first = true;
  for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
    const uint32_t token_head = i % groups, chunk = i / groups;
    int64_t begin = 0;
    const int64_t end = x.tokens.keys(token_head / static_cast<uint32_t>(e.KV), e.window, begin);
    const int64_t s0 = int64_t{chunk} * kChunk;
    if (s0 >= end || s0 + kChunk <= begin) continue;  // nobody looks at this part
    if (!is_first) __syncthreads();                   // the part before has been combined and read
    is_first = false;
    decode_part<T, kD>(e, x, parts, token_head, chunk, {static_cast<int>(begin), static_cast<int>(end)},
                       shared);
  }
}

// Combines row (token, h), a block each: a warp combines its parts in order, then the warps' results are
// combined in order. Sums depend on the number of keys alone.
template <class T, int kD>
__global__ void __launch_bounds__(kMmaThreads)
    paged_merge_kernel(AttentionShape e, PagedDecode<T> x, DecodeParts parts) {
  let_next_begin();
  wait_for_previous();
  __shared__ float tops[kMmaWarps], sums[kMmaWarps], outs[kMmaWarps * kD];
  const uint32_t row = blockIdx.x, heads = e.H, kv_heads = e.KV, group = heads / kv_heads;
  const uint32_t h = row % heads, token = row / heads;
  int64_t seen = 0;
  const int64_t keys = x.tokens.keys(token, e.window, seen), first_chunk = seen / kChunk;
  const int64_t chunks = keys > seen ? (keys + kChunk - 1) / kChunk - first_chunk : 0;
  const int64_t first =
      (int64_t{token * kv_heads + h / group} * parts.chunks + first_chunk) * parts.queries + h % group;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, d = lane * (kD / 32);
  const Team<32> team{lane};
  const int64_t share = (chunks + kMmaWarps - 1) / kMmaWarps;
  const int64_t end = min(chunks, (warp + 1) * share);

  constexpr int kColumns = kD / 32,
                kAtOnce = 8;  // a lane's columns; parts loaded together
  float top = -INFINITY, sum = 0, out[kColumns] = {};
  for (int64_t at = warp * share; at < end; at += 32) {
    // A lane reads one part's statistics.
    const bool is_there = at + lane < end;
    const int64_t mine = first + (at + lane) * parts.queries;
    const float its_top = is_there ? parts.top[mine] : -INFINITY, its_sum = is_there ? parts.sum[mine] : 0;
    const float most = fmaxf(top, team.max(its_top));
    const float base = most == -INFINITY ? 0.0f : most;
    const float factor = exp2f(its_top - base), earlier = exp2f(top - base);
    top = most;
    sum = sum * earlier + team.sum(factor * its_sum);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) out[c] *= earlier;
    const int count = static_cast<int>(min(int64_t{32}, end - at));
    for (int j = 0; j < count; j += kAtOnce) {
      float part[kAtOnce][kColumns] = {};
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (j + k < count && d < e.D)
          load_pack(parts.out + (first + (at + j + k) * parts.queries) * e.D + d, part[k]);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const float its_factor = __shfl_sync(0xffffffffu, factor, j + k);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) out[c] += its_factor * part[k][c];
      }
    }
  }
  if (lane == 0) {
    tops[warp] = top;
    sums[warp] = sum;
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) outs[warp * kD + d + c] = out[c];
  __syncthreads();
  if (threadIdx.x >= e.D) return;
  const auto whole = WarpParts{tops, sums, outs + threadIdx.x, 1, kD}.whole();
  x.out[row * e.D + threadIdx.x] = narrow<T>(whole.top > -INFINITY ? whole.out / whole.sum : 0.0f);
}

}  // namespace

// q [B, T, H, D], k_pages, v_pages [P, S, KV, D], table [R, M], row, position [B, T] -> out [B, T, H, D]
Result<PreparedKernel> prepare_attention_paged_decode(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const PagedShape paged, paged_shape(spec));
  const AttentionShape& shape = paged.shape;
  const PagedTokens& tokens = paged.tokens;
  if (spec.output_count() == 2) return Status(StatusCode::kUnsupported, "lse: the plain kernel has it");
  if (shape.T > kMostTokens)
    return Status(StatusCode::kUnsupported, format("{} tokens, at most {}", shape.T, kMostTokens));
  return dispatch_mma(spec.input_dtype(0), shape, [&](auto zero, auto width) -> Result<PreparedKernel> {
    using T = decltype(zero);
    constexpr int kD = decltype(width)::value;
    const int64_t queries = shape.group(), groups = shape.T * shape.KV;
    if (queries < 1 || queries > kMostQueries || shape.H == 0)
      return Status(StatusCode::kUnsupported,
                    format("{} queries a head of keys, 1 to {}", queries, kMostQueries));
    const int64_t chunks = (shape.S + kChunk - 1) / kChunk, rows = shape.T * shape.H;
    if (rows >= kMostGrid || groups * chunks >= kMostGrid)
      return Status(StatusCode::kUnsupported, format("{} rows, {} parts", rows, groups * chunks));
    TSR_RETURN_IF_ERROR(allow_shared(paged_decode_kernel<T, kD>, kDecodeBytes<kD>));
    TSR_ASSIGN_OR_RETURN(PreparedKernel other, prepare_attention_paged(spec));
    auto launch = [=](const LaunchArgs& args) {
      PagedDecode<T> x{args.in<T>(0), args.in<T>(1), args.in<T>(2), args.out<T>(0), tokens.of(args)};
      const DecodeParts parts(args.workspace, groups, chunks, queries, shape.D);
      if (groups * chunks > 0)
        launch_overlapping(paged_decode_kernel<T, kD>,
                           static_cast<unsigned>(std::min(groups * chunks, kDecodeBlocks)), kMmaThreads,
                           kDecodeBytes<kD>, args, shape, x, parts);
      if (rows > 0)
        launch_overlapping(paged_merge_kernel<T, kD>, static_cast<unsigned>(rows), kMmaThreads, 0, args, shape, x,
                           parts);
    };
    return memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)),
                        DecodeParts::bytes(groups, chunks, queries, shape.D));
  });
}

}  // namespace tessera::cuda
