// Selective scans and their gradient, token by token: a thread has the state of one channel in registers. A channel's sums are
// added in one order, whatever the step that a token comes in.
#include "runtime/backends/cuda/kernels/recurrent_kernels.h"
#include "runtime/backends/cuda/kernels/scan_tokens.cuh"

namespace tessera::cuda {

namespace {

constexpr int kMostNumbers = 64;                // of a channel's state
constexpr int64_t kSelectiveChunk = 32;         // tokens between the states that the gradient keeps
constexpr int kSelectiveChannels = 32;          // of a warp of the gradient

struct SelectiveShape {
  int64_t B, T, C, N;
  bool expands;

  // x is operand `x`, followed by step, and where the state is expanded by rate, b, c.
  SelectiveShape(const KernelSpec& spec, int x)
      : B(spec.input_dims(x)[0]),
        T(spec.input_dims(x)[1]),
        C(spec.input_dims(x)[2]),
        N(spec.i64("expand") == 1 ? spec.input_dims(x + 2)[1] : 1),
        expands(spec.i64("expand") == 1) {}
  int operand_count() const { return expands ? 5 : 2; }
  double flops() const { return static_cast<double>(B * T * C) * static_cast<double>(expands ? 14 * N : 10); }
};

// Without expansion rate, b and c are 1, and the input has no factor step.
template <class T>
struct SelectiveOperands {
  using W = Wide<T>;
  SelectiveShape e;
  const T* x;
  const W *step, *rate;
  const T *b, *c;

  SelectiveOperands(const SelectiveShape& e, const LaunchArgs& args, int first)
      : e(e),
        x(args.in<T>(first)),
        step(args.in<W>(first + 1)),
        rate(e.expands ? args.in<W>(first + 2) : nullptr),
        b(e.expands ? args.in<T>(first + 3) : nullptr),
        c(e.expands ? args.in<T>(first + 4) : nullptr) {}

  __device__ W rate_of(int64_t channel, int n) const {
    return e.expands ? n < e.N ? rate[channel * e.N + n] : W(0) : W(1);
  }
  __device__ W input(int64_t at) const { return e.expands ? step[at] * widen(x[at]) : widen(x[at]); }
  __device__ W b_of(int64_t token, int n) const { return e.expands ? widen(b[token * e.N + n]) : W(1); }
  __device__ W c_of(int64_t token, int n) const { return e.expands ? widen(c[token * e.N + n]) : W(1); }
};

// An index is a sequence, or a row of state, and a channel; kN >= N.
template <class T, int kN, class Tokens>
struct SelectiveForward {
  using W = Wide<T>;
  SelectiveOperands<T> x;
  Tokens tokens;
  T* y;
  __device__ void operator()(int64_t i) const {
    const SelectiveShape& e = x.e;
    const int64_t sequence = i / e.C, channel = i % e.C, count = tokens.count(sequence);
    if (count == 0) return;
    W* const kept = tokens.state(sequence);
    W state[kN], rate[kN];
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      rate[n] = x.rate_of(channel, n);
      state[n] = kept != nullptr && n < e.N ? kept[n * e.C + channel] : W(0);
    }
    for (int64_t turn = 0; turn < count; ++turn) {
      const int64_t token = tokens.token(sequence, turn), at = token * e.C + channel;
      const bool starts = tokens.starts(token);
      const W step = x.step[at], u = x.input(at);
      W sum = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n)
        if (n < e.N) {
          const W before = starts ? W(0) : state[n];
          state[n] = exp(step * rate[n]) * before + u * x.b_of(token, n);
          sum += state[n] * x.c_of(token, n);
        }
      y[at] = narrow<T>(sum);
    }
#pragma unroll
    for (int n = 0; n < kN; ++n)
      if (kept != nullptr && n < e.N) kept[n * e.C + channel] = state[n];
  }
};

// f(std::integral_constant<int, kN>{}) for a kN that holds N.
template <class F>
void with_numbers(int64_t N, F&& f) {
  if (N <= 1)
    f(std::integral_constant<int, 1>{});
  else if (N <= 16)
    f(std::integral_constant<int, 16>{});
  else
    f(std::integral_constant<int, kMostNumbers>{});
}

Status check_numbers(const SelectiveShape& e) {
  if (e.N <= kMostNumbers) return {};
  return Status(StatusCode::kUnsupported, format("states of {} numbers: at most {}", e.N, kMostNumbers));
}

PreparedKernel selective_prepared(const KernelSpec& spec, double flops, std::unique_ptr<Kernel> kernel,
                                  int64_t workspace_bytes) {
  PreparedKernel prepared = memory_bound(spec, std::move(kernel), workspace_bytes);
  prepared.flops = flops;
  prepared.efficiency = 0.05;
  return prepared;
}

// Memory of the gradient: sums over a warp's channels [tiles, B, T, N] twice, of rate [B, C, N], and of each warp the states
// [N][kSelectiveChannels] before chunks and around the tokens of a chunk.
template <class W>
struct SelectiveMemory {
  W *db, *dc, *drate, *states;

  static __host__ __device__ int64_t tiles(const SelectiveShape& e) {
    return (e.C + kSelectiveChannels - 1) / kSelectiveChannels;
  }
  static __host__ __device__ int64_t chunks(const SelectiveShape& e) {
    return (e.T + kSelectiveChunk - 1) / kSelectiveChunk;
  }
  static __host__ __device__ int64_t warp_states(const SelectiveShape& e) { return chunks(e) + kSelectiveChunk + 1; }
  static int64_t count(const SelectiveShape& e) {
    const int64_t sums = 2 * tiles(e) * e.T + e.C, states = tiles(e) * warp_states(e) * kSelectiveChannels;
    return e.B * e.N * (sums + states);
  }
  SelectiveMemory(const SelectiveShape& e, void* memory)
      : db(static_cast<W*>(memory)),
        dc(db + tiles(e) * e.B * e.T * e.N),
        drate(dc + tiles(e) * e.B * e.T * e.N),
        states(drate + e.B * e.C * e.N) {}
};

// A row is a sequence and a tile of channels, one of a lane. A lane touches its own states alone.
template <class T, int kN>
struct SelectiveBack {
  using W = Wide<T>;
  SelectiveOperands<T> x;
  const T* dy;
  const int32_t* segments;  // may be null
  T* dx;
  W* dstep;
  SelectiveMemory<W> memory;

  __device__ bool starts(int64_t token) const {
    return token % x.e.T == 0 || (segments != nullptr && segments[token] != segments[token - 1]);
  }

  // Scans tokens [begin, end) of the sequence; each state goes `states` after the one before it, `size` numbers apart.
  __device__ void scan(int64_t b, int64_t channel, int64_t begin, int64_t end, W* states, int64_t size,
                       const W (&rate)[kN]) const {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t token = b * x.e.T + t, at = token * x.e.C + channel;
      const W step = x.step[at], u = x.input(at);
      W* const before = states + (t - begin) * size;
#pragma unroll
      for (int n = 0; n < kN; ++n)
        if (n < x.e.N) {
          const W s = starts(token) ? W(0) : before[n * kSelectiveChannels];
          before[size + n * kSelectiveChannels] = exp(step * rate[n]) * s + u * x.b_of(token, n);
        }
    }
  }

  __device__ void operator()(const Team<32>& team, int64_t row) const {
    const SelectiveShape& e = x.e;
    const int64_t tiles = SelectiveMemory<W>::tiles(e), chunks = SelectiveMemory<W>::chunks(e);
    const int64_t b = row / tiles, channel = row % tiles * kSelectiveChannels + team.rank, size = e.N * kSelectiveChannels;
    const bool is_there = channel < e.C;
    W* const kept = memory.states + row * SelectiveMemory<W>::warp_states(e) * size + team.rank;
    W* const states = kept + chunks * size;
    W rate[kN], slope[kN], drate[kN];
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      rate[n] = is_there ? x.rate_of(channel, n) : W(0);
      slope[n] = drate[n] = W(0);
    }
    const auto copy = [&](const W* from, W* to) {
      for (int64_t n = 0; n < e.N; ++n) to[n * kSelectiveChannels] = from == nullptr ? W(0) : from[n * kSelectiveChannels];
    };
    copy(nullptr, kept);
    for (int64_t chunk = 0; is_there && chunk + 1 < chunks; ++chunk) {
      copy(kept + chunk * size, states);
      scan(b, channel, chunk * kSelectiveChunk, (chunk + 1) * kSelectiveChunk, states, size, rate);
      copy(states + kSelectiveChunk * size, kept + (chunk + 1) * size);
    }
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
      const int64_t begin = chunk * kSelectiveChunk, end = begin + kSelectiveChunk < e.T ? begin + kSelectiveChunk : e.T;
      if (is_there) {
        copy(kept + chunk * size, states);
        scan(b, channel, begin, end, states, size, rate);
      }
      for (int64_t t = end - 1; t >= begin; --t)
        back(team, row, b * e.T + t, channel, states + (t - begin) * size, rate, slope, drate);
    }
#pragma unroll
    for (int n = 0; n < kN; ++n)
      if (is_there && e.expands && n < e.N) memory.drate[(b * e.C + channel) * e.N + n] = drate[n];
  }

  // One token backwards; `before` is the state before it, that after it follows.
  __device__ void back(const Team<32>& team, int64_t row, int64_t token, int64_t channel, const W* before,
                       const W (&rate)[kN], W (&slope)[kN], W (&drate)[kN]) const {
    const SelectiveShape& e = x.e;
    const bool is_there = channel < e.C, is_first = starts(token);
    const int64_t at = token * e.C + channel, tile = row % SelectiveMemory<W>::tiles(e);
    const W g_out = is_there ? widen(dy[at]) : W(0), u = is_there ? x.input(at) : W(0), step = is_there ? x.step[at] : W(0);
    W du = 0, dexponent = 0;
#pragma unroll
    for (int n = 0; n < kN; ++n)
      if (n < e.N) {
        const W after = is_there ? before[(e.N + n) * kSelectiveChannels] : W(0);
        const W old = is_there && !is_first ? before[n * kSelectiveChannels] : W(0);
        slope[n] += x.c_of(token, n) * g_out;
        du += slope[n] * x.b_of(token, n);
        if (e.expands) {
          const W dc = team.sum(g_out * after), db = team.sum(slope[n] * u);
          const int64_t sum = (tile * e.B * e.T + token) * e.N + n;
          if (team.rank == 0) memory.dc[sum] = dc, memory.db[sum] = db;
        }
        const W decayed = slope[n] * exp(step * rate[n]), de = decayed * old;
        dexponent += de * rate[n];
        drate[n] += de * step;
        slope[n] = is_first ? W(0) : decayed;
      }
    if (!is_there) return;
    dx[at] = narrow<T>(e.expands ? du * step : du);
    dstep[at] = e.expands ? du * widen(x.x[at]) + dexponent : dexponent;
  }
};

// The sum of rows [rows, count], in order.
template <class T>
struct SelectiveTotal {
  const Wide<T>* parts;
  int64_t rows, count;
  T* sums;
  __device__ void operator()(int64_t i) const {
    Wide<T> sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += parts[row * count + i];
    sums[i] = narrow<T>(sum);
  }
};

}  // namespace

// x, step [B, T, C], rate [C, N], b, c [B, T, N], segments [B, T] -> y [B, T, C]; without expansion of x, log_decay, segments
Result<PreparedKernel> prepare_selective_scan(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using Tokens = WholeTokens<Wide<T>>;
    const SelectiveShape e(spec, 0);
    TSR_RETURN_IF_ERROR(check_numbers(e));
    const int segments = e.operand_count();
    const bool has_segments = spec.input_count() > segments;
    return selective_prepared(
        spec, e.flops(), make_kernel([=](const LaunchArgs& args) {
          const Tokens tokens{has_segments ? args.in<int32_t>(segments) : nullptr, e.T};
          with_numbers(e.N, [&](auto numbers) {
            launch_each(args.stream, e.B * e.C,
                        SelectiveForward<T, decltype(numbers)::value, Tokens>{SelectiveOperands<T>(e, args, 0), tokens,
                                                                              args.out<T>(0)});
          });
        }),
        0);
  });
}

// dy [B, T, C] and those operands -> dx, dstep, drate, db, dc; without expansion dx, dlog_decay
Result<PreparedKernel> prepare_selective_scan_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const SelectiveShape e(spec, 1);
    TSR_RETURN_IF_ERROR(check_numbers(e));
    const int segments = 1 + e.operand_count();
    const bool has_segments = spec.input_count() > segments;
    return selective_prepared(
        spec, 3 * e.flops(), make_kernel([=](const LaunchArgs& args) {
          const int64_t tiles = SelectiveMemory<W>::tiles(e), tokens = e.B * e.T;
          const SelectiveMemory<W> memory(e, args.workspace);
          const int32_t* const numbers_of = has_segments ? args.in<int32_t>(segments) : nullptr;
          with_numbers(e.N, [&](auto numbers) {
            launch_teams<32>(args.stream, e.B * tiles,
                             SelectiveBack<T, decltype(numbers)::value>{SelectiveOperands<T>(e, args, 1), args.in<T>(0),
                                                                        numbers_of, args.out<T>(0), args.out<W>(1), memory});
          });
          if (!e.expands) return;
          launch_each(args.stream, e.C * e.N, SelectiveTotal<W>{memory.drate, e.B, e.C * e.N, args.out<W>(2)});
          launch_each(args.stream, tokens * e.N, SelectiveTotal<T>{memory.db, tiles, tokens * e.N, args.out<T>(3)});
          launch_each(args.stream, tokens * e.N, SelectiveTotal<T>{memory.dc, tiles, tokens * e.N, args.out<T>(4)});
        }),
        SelectiveMemory<W>::count(e) * static_cast<int64_t>(sizeof(W)));
  });
}

// state [R, N, C], those operands with tokens [B, M], row, position [B, M] -> y [B, M, C], state
Result<PreparedKernel> prepare_selective_scan_rows(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const SelectiveShape e(spec, 1);
    TSR_RETURN_IF_ERROR(check_numbers(e));
    const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T;
    const int64_t state_bytes = spec.input_elements(0) * static_cast<int64_t>(sizeof(W));
    const int row = 1 + e.operand_count();
    return selective_prepared(
        spec, e.flops(), make_kernel([=](const LaunchArgs& args) -> Status {
          const RowTokens lists(R, tokens, args.in<int32_t>(row), args.workspace);
          TSR_RETURN_IF_ERROR(begin_rows(args, lists, args.out<T>(0), e.C, state_bytes));
          const StepTokens<W> step{lists, args.in<int32_t>(row + 1), args.out<W>(1), e.N * e.C};
          with_numbers(e.N, [&](auto numbers) {
            launch_each(args.stream, R * e.C,
                        SelectiveForward<T, decltype(numbers)::value, StepTokens<W>>{SelectiveOperands<T>(e, args, 1), step,
                                                                                     args.out<T>(0)});
          });
          return {};
        }),
        RowTokens::bytes(R, tokens));
  });
}

}  // namespace tessera::cuda
