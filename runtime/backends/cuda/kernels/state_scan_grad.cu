// The gradient of a scan, token by token: a block has one key head of one sequence, and takes a few columns of its value heads'
// states at a time. A first scan keeps the states at every 64th token; from them each chunk is scanned again, last chunk first,
// and then gone through backwards.
#include "runtime/backends/cuda/kernels/recurrent_kernels.h"
#include "runtime/backends/cuda/kernels/state_scan.cuh"

namespace tessera::cuda {

namespace {

constexpr int kGradColumns = 8;
constexpr int64_t kChunk = 64;
using GradBlock = ScanBlock<kGradColumns>;

// Memory of a block: states [K][kGradColumns] before chunks and before the tokens of a chunk, v - S^T k of these, and sums.
template <class W>
struct GradScratch {
  W *kept, *before, *gap;  // [chunks], [kChunk], [kChunk][kGradColumns]
  W *dq, *dk, *dbeta;      // [T][K], [T][K], [T]

  __host__ __device__ static int64_t count(const ScanShape& e) {
    const int64_t chunks = (e.T + kChunk - 1) / kChunk, state = e.K * kGradColumns;
    return (chunks + kChunk) * state + kChunk * kGradColumns + e.T * (2 * e.K + 1);
  }
  __device__ GradScratch(const ScanShape& e, W* memory) {
    const int64_t chunks = (e.T + kChunk - 1) / kChunk, state = e.K * kGradColumns;
    kept = memory;
    before = kept + chunks * state;
    gap = before + kChunk * state;
    dq = gap + kChunk * kGradColumns;
    dk = dq + e.T * e.K;
    dbeta = dk + e.T * e.K;
  }
};

// GradHead: what a block's threads share. A thread touches the numbers of its column and channels alone, except for `gap`.
template <class T, class S>
struct GradHead {
  using W = Wide<T>;
  ScanShape e;
  ScanOperands<T, S> x;
  const T* dout;
  const int32_t* segments;  // may be null
  T *dq, *dk, *dv;
  W* dlog_decay;
  S* dbeta;
};

template <class T, class S>
struct GradThread {
  using W = Wide<T>;
  const GradHead<T, S>& x;
  const ScanShape& e;
  GradScratch<W> scratch;
  W *state, *slope;  // [K][kGradColumns] in shared memory
  W* part;           // [4][kWarps * kGradColumns], likewise
  GradBlock block;
  int64_t b, g, h, v;  // v: of this thread

  template <class Body>
  __device__ void each_channel(Body body) const {
    for (int64_t i = block.slice; i < e.K; i += GradBlock::kSlices) body(i, i * kGradColumns + block.column);
  }
  __device__ int64_t row(int64_t t) const { return (b * e.T + t) * e.H + h; }
  __device__ int64_t key(int64_t t, int64_t i) const { return ((b * e.T + t) * e.G + g) * e.K + i; }
  __device__ bool is_there() const { return v < e.V; }
  __device__ bool starts(int64_t t) const {
    return t == 0 || (x.segments != nullptr && x.segments[b * e.T + t] != x.segments[b * e.T + t - 1]);
  }
  __device__ W decay(int64_t t, int64_t i) const {
    return exp(x.x.log_decay[row(t) * e.decays() + (e.decays_by_channel ? i : 0)]);
  }
  // Two places by turns: what one token reads, the next does not write.
  __device__ W* parts(int64_t t, int which) const {
    return part + (2 * which + t % 2) * GradBlock::kWarps * kGradColumns;
  }

  __device__ void scan_chunk(int64_t begin, int64_t end) const {
    for (int64_t t = begin; t < end; ++t) {
      W* const before = scratch.before + (t - begin) * e.K * kGradColumns;
      const bool is_first = starts(t);
      W dot = 0;
      each_channel([&](int64_t i, int64_t at) {
        const W s = is_first ? W(0) : state[at];
        before[at] = s;
        state[at] = s * decay(t, i);
        dot += state[at] * widen(x.x.k[key(t, i)]);
      });
      dot = block.sum_slices(dot, parts(t, 0));
      W gap = is_there() ? widen(x.x.v[row(t) * e.V + v]) : W(0);
      if (e.corrects) gap -= dot;
      if (block.slice == 0) scratch.gap[(t - begin) * kGradColumns + block.column] = gap;
      const W change = widen(x.x.beta[row(t)]) * gap;
      each_channel([&](int64_t i, int64_t at) { state[at] += widen(x.x.k[key(t, i)]) * change; });
    }
    __syncthreads();  // gaps are read by all
  }

  __device__ void back(int64_t t, int64_t begin) const {
    const W* const before = scratch.before + (t - begin) * e.K * kGradColumns;
    const W gap = scratch.gap[(t - begin) * kGradColumns + block.column], beta = widen(x.x.beta[row(t)]);
    const W out = is_there() ? static_cast<W>(e.scale) * widen(x.dout[row(t) * e.V + v]) : W(0);
    W dot = 0;
    each_channels_together([&](int64_t i, int64_t at, bool is_real) {
      const W k = is_real ? widen(x.x.k[key(t, i)]) : W(0);
      W after = 0;
      if (is_real) {
        after = before[at] * decay(t, i) + k * beta * gap;
        slope[at] += widen(x.x.q[key(t, i)]) * out;
        dot += slope[at] * k;
      }
      after = block.sum_columns(out * after);
      if (is_real && block.column == 0) scratch.dq[t * e.K + i] += after;
    });
    dot = block.sum_slices(dot, parts(t, 0));
    const W dgap = beta * dot;
    if (block.slice == 0 && is_there()) x.dv[row(t) * e.V + v] = narrow<T>(dgap);
    const W dbeta = block.sum_columns(gap * dot);
    if (threadIdx.x == 0) scratch.dbeta[t] += dbeta;
    finish_back(t, before, beta * gap, e.corrects ? dgap : W(0));
  }

  // dk, the gradient of the decay, and that of the state before.
  __device__ void finish_back(int64_t t, const W* before, W change, W dgap) const {
    const bool is_first = starts(t);
    W* const ddecay = x.dlog_decay + row(t) * e.decays();
    W decay_sum = 0;
    each_channels_together([&](int64_t i, int64_t at, bool is_real) {
      W dk = 0, term = 0;
      if (is_real) {
        const W factor = decay(t, i), decayed = before[at] * factor;
        dk = slope[at] * change - decayed * dgap;
        const W rest = slope[at] - widen(x.x.k[key(t, i)]) * dgap;
        term = rest * decayed;
        slope[at] = is_first ? W(0) : factor * rest;
      }
      dk = block.sum_columns(dk);
      if (is_real && block.column == 0) scratch.dk[t * e.K + i] += dk;
      if (!e.decays_by_channel) {
        decay_sum += term;
        return;
      }
      term = block.sum_columns(term);
      if (is_real && block.column == 0) ddecay[i] += term;
    });
    if (e.decays_by_channel) return;
    decay_sum = block.sum_columns(block.sum_slices(decay_sum, parts(t, 1)));
    if (threadIdx.x == 0) ddecay[0] += decay_sum;
  }

  // As each_channel, but all threads take part in every turn, for what they sum together.
  template <class Body>
  __device__ void each_channels_together(Body body) const {
    for (int64_t first = 0; first < e.K; first += GradBlock::kSlices) {
      const int64_t i = first + block.slice;
      body(i, i * kGradColumns + block.column, i < e.K);
    }
  }

  __device__ void columns() const {
    const int64_t chunks = (e.T + kChunk - 1) / kChunk, size = e.K * kGradColumns;
    each_channel([&](int64_t, int64_t at) { state[at] = slope[at] = W(0); });
    for (int64_t chunk = 0; chunk + 1 < chunks; ++chunk) {
      scan_chunk(chunk * kChunk, (chunk + 1) * kChunk);
      each_channel([&](int64_t, int64_t at) { scratch.kept[(chunk + 1) * size + at] = state[at]; });
    }
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
      const int64_t begin = chunk * kChunk, end = begin + kChunk < e.T ? begin + kChunk : e.T;
      each_channel([&](int64_t, int64_t at) { state[at] = chunk == 0 ? W(0) : scratch.kept[chunk * size + at]; });
      scan_chunk(begin, end);
      for (int64_t t = end - 1; t >= begin; --t) back(t, begin);
      __syncthreads();  // before gaps are written again
    }
  }
};

template <class T, class S>
__global__ void __launch_bounds__(kScanThreads) scan_grad_kernel(GradHead<T, S> x, Wide<T>* memory) {
  using W = Wide<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ W part[4 * GradBlock::kWarps * kGradColumns];
  const ScanShape& e = x.e;
  W* const state = reinterpret_cast<W*>(shared);
  GradThread<T, S> thread{x,
                          e,
                          GradScratch<W>(e, memory + blockIdx.x * GradScratch<W>::count(e)),
                          state,
                          state + e.K * kGradColumns,
                          part,
                          GradBlock(),
                          static_cast<int64_t>(blockIdx.x) / e.G,
                          static_cast<int64_t>(blockIdx.x) % e.G,
                          0,
                          0};
  const GradScratch<W>& sums = thread.scratch;
  const bool is_owner = thread.block.column == 0;  // of sums over columns
  const auto each_sum = [&](auto body) {
    for (int64_t t = 0; t < e.T; ++t)
      for (int64_t i = thread.block.slice; is_owner && i < e.K; i += GradBlock::kSlices) body(t, i);
  };
  each_sum([&](int64_t t, int64_t i) { sums.dq[t * e.K + i] = sums.dk[t * e.K + i] = W(0); });
  for (thread.h = thread.g * e.group(); thread.h < (thread.g + 1) * e.group(); ++thread.h) {
    if (e.decays_by_channel)
      each_sum([&](int64_t t, int64_t i) { x.dlog_decay[thread.row(t) * e.K + i] = W(0); });
    for (int64_t t = 0; threadIdx.x == 0 && t < e.T; ++t) {
      sums.dbeta[t] = W(0);
      if (!e.decays_by_channel) x.dlog_decay[thread.row(t)] = W(0);
    }
    for (int64_t first = 0; first < e.V; first += kGradColumns) {
      thread.v = first + thread.block.column;
      thread.columns();
    }
    for (int64_t t = 0; threadIdx.x == 0 && t < e.T; ++t) x.dbeta[thread.row(t)] = narrow<S>(sums.dbeta[t]);
  }
  each_sum([&](int64_t t, int64_t i) {
    x.dq[thread.key(t, i)] = narrow<T>(sums.dq[t * e.K + i]);
    x.dk[thread.key(t, i)] = narrow<T>(sums.dk[t * e.K + i]);
  });
}

}  // namespace

// dout [B, T, H, V], q, k [B, T, G, K], v [B, T, H, V], log_decay [B, T, H] or [B, T, H, K], beta [B, T, H],
// segments [B, T] -> dq, dk, dv, dlog_decay, dbeta
Result<PreparedKernel> prepare_state_scan_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    return dispatch_beta<T>(spec.input_dtype(5), spec.input_dtype(0), [&](auto beta) -> Result<PreparedKernel> {
      using S = decltype(beta);
      const ScanShape e(spec, 1);
      const auto shared_bytes = static_cast<size_t>(2 * e.K * kGradColumns) * sizeof(W);
      if (constexpr size_t kMostShared = 40 * 1024; shared_bytes > kMostShared)
        return Status(StatusCode::kUnsupported, format("keys of {} channels: at most {}", e.K,
                                                       kMostShared / (2 * kGradColumns * sizeof(W))));
      const bool has_segments = spec.input_count() == 7;
      const int64_t blocks = e.B * e.G, workspace_bytes = blocks * GradScratch<W>::count(e) * int64_t{sizeof(W)};
      PreparedKernel prepared = memory_bound(
          spec, make_kernel([=](const LaunchArgs& args) {
            if (blocks == 0) return;
            const GradHead<T, S> head{e,
                                      ScanOperands<T, S>(args, 1),
                                      args.in<T>(0),
                                      has_segments ? args.in<int32_t>(6) : nullptr,
                                      args.out<T>(0),
                                      args.out<T>(1),
                                      args.out<T>(2),
                                      args.out<W>(3),
                                      args.out<S>(4)};
            scan_grad_kernel<T, S><<<static_cast<unsigned>(blocks), kScanThreads, shared_bytes, args.stream>>>(
                head, static_cast<W*>(args.workspace));
          }),
          workspace_bytes);
      prepared.flops = 4 * e.flops();
      prepared.efficiency = 0.02;
      return std::move(prepared);
    });
  });
}

}  // namespace tessera::cuda
