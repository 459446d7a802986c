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

// Memory of a block: states [K][kGradColumns] before chunks and before the tokens of a chunk, v - S^T k of these or with rule
// general S^T a, and sums.
template <class W>
struct GradScratch {
  W *kept, *before, *read;         // [chunks], [kChunk], [kChunk][kGradColumns]
  W *dq, *dk, *dbeta, *da, *db;    // [T][K], [T][K], [T]; with rule general [T][K] twice

  __host__ __device__ static int64_t count(const ScanShape& e) {
    const int64_t chunks = (e.T + kChunk - 1) / kChunk, state = e.K * kGradColumns;
    return (chunks + kChunk) * state + kChunk * kGradColumns + e.T * ((e.is_general() ? 4 : 2) * e.K + 1);
  }
  __device__ GradScratch(const ScanShape& e, W* memory) {
    const int64_t chunks = (e.T + kChunk - 1) / kChunk, state = e.K * kGradColumns;
    kept = memory;
    before = kept + chunks * state;
    read = before + kChunk * state;
    dq = read + kChunk * kGradColumns;
    dk = dq + e.T * e.K;
    dbeta = dk + e.T * e.K;
    da = dbeta + e.T;
    db = da + e.T * e.K;
  }
};

// GradHead: what a block's threads share. A thread touches the numbers of its column and channels alone, except for `read`.
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
  T *da, *db;
};

template <class T, class S>
struct GradThread {
  using W = Wide<T>;
  const GradHead<T, S>& x;
  const ScanShape& e;
  GradScratch<W> scratch;
  W *state, *slope;  // [K][kGradColumns] in shared memory
  W* part;           // [6][kWarps * kGradColumns], likewise
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
  __device__ W value(int64_t t) const { return is_there() ? widen(x.x.v[row(t) * e.V + v]) : W(0); }
  // The factor of k in the update.
  __device__ W change_of(int64_t t, W read) const { return e.is_general() ? value(t) : widen(x.x.beta[row(t)]) * read; }
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
        dot += e.is_general() ? s * widen(x.x.a[key(t, i)]) : state[at] * widen(x.x.k[key(t, i)]);
      });
      dot = block.sum_slices(dot, parts(t, 0));
      const W read = e.is_general() ? dot : value(t) - (e.rule == ScanRule::kDelta ? dot : W(0));
      if (block.slice == 0) scratch.read[(t - begin) * kGradColumns + block.column] = read;
      const W change = change_of(t, read);
      each_channel([&](int64_t i, int64_t at) {
        state[at] += widen(x.x.k[key(t, i)]) * change;
        if (e.is_general()) state[at] += widen(x.x.b[key(t, i)]) * read;
      });
    }
    __syncthreads();  // what was read is read by all
  }

  __device__ void back(int64_t t, int64_t begin) const {
    const W* const before = scratch.before + (t - begin) * e.K * kGradColumns;
    const W read = scratch.read[(t - begin) * kGradColumns + block.column], change = change_of(t, read);
    const W out = is_there() ? static_cast<W>(e.scale) * widen(x.dout[row(t) * e.V + v]) : W(0);
    W dot = 0, dread = 0;
    each_channels_together([&](int64_t i, int64_t at, bool is_real) {
      W after = 0, db = 0;
      if (is_real) {
        const W k = widen(x.x.k[key(t, i)]);
        after = before[at] * decay(t, i) + k * change;
        slope[at] += widen(x.x.q[key(t, i)]) * out;
        dot += slope[at] * k;
        if (e.is_general()) {
          const W b = widen(x.x.b[key(t, i)]);
          after += b * read;
          db = slope[at] * read;
          dread += slope[at] * b;
        }
      }
      add_of_columns(scratch.dq, t, i, out * after, is_real);
      if (e.is_general()) add_of_columns(scratch.db, t, i, db, is_real);
    });
    dot = block.sum_slices(dot, parts(t, 0));
    const W dvalue = e.is_general() ? dot : widen(x.x.beta[row(t)]) * dot;
    if (block.slice == 0 && is_there()) x.dv[row(t) * e.V + v] = narrow<T>(dvalue);
    if (e.is_general()) {
      dread = block.sum_slices(dread, parts(t, 2));
    } else {
      dread = e.rule == ScanRule::kDelta ? -dvalue : W(0);
      const W dbeta = block.sum_columns(read * dot);
      if (threadIdx.x == 0) scratch.dbeta[t] += dbeta;
    }
    finish_back(t, before, change, dread);
  }

  // Adds the sum over the columns to sums [T][K].
  __device__ void add_of_columns(W* sums, int64_t t, int64_t i, W value, bool is_real) const {
    value = block.sum_columns(value);
    if (is_real && block.column == 0) sums[t * e.K + i] += value;
  }

  // dk, da, the gradient of the decay, and that of the state before; dread: of S^T k or S^T a.
  __device__ void finish_back(int64_t t, const W* before, W change, W dread) const {
    const bool is_first = starts(t);
    W* const ddecay = x.dlog_decay + row(t) * e.decays();
    W decay_sum = 0;
    each_channels_together([&](int64_t i, int64_t at, bool is_real) {
      W dk = 0, da = 0, term = 0;
      if (is_real) {
        const W factor = decay(t, i), decayed = before[at] * factor;
        W rest = slope[at];
        dk = rest * change;
        if (e.rule == ScanRule::kDelta) {
          dk += decayed * dread;
          rest += widen(x.x.k[key(t, i)]) * dread;
        }
        term = rest * decayed;
        rest *= factor;
        if (e.is_general()) {
          da = before[at] * dread;
          rest += widen(x.x.a[key(t, i)]) * dread;
        }
        slope[at] = is_first ? W(0) : rest;
      }
      add_of_columns(scratch.dk, t, i, dk, is_real);
      if (e.is_general()) add_of_columns(scratch.da, t, i, da, is_real);
      if (e.decays_by_channel)
        add_of_columns(ddecay, 0, i, term, is_real);
      else
        decay_sum += term;
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
      __syncthreads();  // before what was read is written again
    }
  }
};

template <class T, class S>
__global__ void __launch_bounds__(kScanThreads) scan_grad_kernel(GradHead<T, S> x, Wide<T>* memory) {
  using W = Wide<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ W part[6 * GradBlock::kWarps * kGradColumns];
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
  each_sum([&](int64_t t, int64_t i) {
    sums.dq[t * e.K + i] = sums.dk[t * e.K + i] = W(0);
    if (e.is_general()) sums.da[t * e.K + i] = sums.db[t * e.K + i] = W(0);
  });
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
    for (int64_t t = 0; threadIdx.x == 0 && !e.is_general() && t < e.T; ++t)
      x.dbeta[thread.row(t)] = narrow<S>(sums.dbeta[t]);
  }
  each_sum([&](int64_t t, int64_t i) {
    x.dq[thread.key(t, i)] = narrow<T>(sums.dq[t * e.K + i]);
    x.dk[thread.key(t, i)] = narrow<T>(sums.dk[t * e.K + i]);
    if (!e.is_general()) return;
    x.da[thread.key(t, i)] = narrow<T>(sums.da[t * e.K + i]);
    x.db[thread.key(t, i)] = narrow<T>(sums.db[t * e.K + i]);
  });
}

}  // namespace

// dout [B, T, H, V], q, k [B, T, G, K], v [B, T, H, V], log_decay [B, T, H] or [B, T, H, K], beta [B, T, H] or
// a, b [B, T, G, K], segments [B, T] -> dq, dk, dv, dlog_decay, and dbeta or da, db
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
      const int segments = 1 + e.operand_count();
      const bool has_segments = spec.input_count() > segments;
      const int64_t blocks = e.B * e.G, workspace_bytes = blocks * GradScratch<W>::count(e) * int64_t{sizeof(W)};
      PreparedKernel prepared = memory_bound(
          spec, make_kernel([=](const LaunchArgs& args) {
            if (blocks == 0) return;
            const GradHead<T, S> head{e,
                                      ScanOperands<T, S>(e, args, 1),
                                      args.in<T>(0),
                                      has_segments ? args.in<int32_t>(segments) : nullptr,
                                      args.out<T>(0),
                                      args.out<T>(1),
                                      args.out<T>(2),
                                      args.out<W>(3),
                                      e.is_general() ? nullptr : args.out<S>(4),
                                      e.is_general() ? args.out<T>(4) : nullptr,
                                      e.is_general() ? args.out<T>(5) : nullptr};
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
