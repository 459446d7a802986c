#include "runtime/backends/cuda/kernels/activation_math.cuh"
#include "runtime/backends/cuda/kernels/columns.cuh"
#include "runtime/backends/cuda/kernels/recurrent_kernels.h"
#include "runtime/backends/cuda/kernels/row_tokens.cuh"

namespace tessera::cuda {

namespace {

constexpr int kMostTaps = 8;

struct ConvShape {
  int64_t B, T, C, K;
  bool has_bias, has_segments, has_silu;

  // x is operand `x`, followed by w, bias, and what tells which tokens belong together.
  ConvShape(const KernelSpec& spec, int x)
      : B(spec.input_dims(x)[0]),
        T(spec.input_dims(x)[1]),
        C(spec.input_dims(x)[2]),
        K(spec.input_dims(x + 1)[1]),
        has_bias(spec.i64("bias") == 1),
        has_segments(spec.input_count() > x + 2 + (has_bias ? 1 : 0)),
        has_silu(!spec.string("activation").empty()) {}
  int64_t elements() const { return B * T * C; }
};

template <class T>
struct Conv {
  using W = Wide<T>;
  ConvShape e;
  const T *x, *w, *bias;
  const int32_t* segments;

  Conv(const ConvShape& e, const LaunchArgs& args, int first)
      : e(e),
        x(args.in<T>(first)),
        w(args.in<T>(first + 1)),
        bias(e.has_bias ? args.in<T>(first + 2) : nullptr),
        segments(e.has_segments ? args.in<int32_t>(first + (e.has_bias ? 3 : 2)) : nullptr) {}

  // Whether token `row` of B * T sees the one `age` before it.
  __device__ bool joins(int64_t row, int64_t age) const {
    return row % e.T >= age && (segments == nullptr || segments[row - age] == segments[row]);
  }
  __device__ W activated(W sum) const { return e.has_silu ? silu(sum) : sum; }
  __device__ W sum(int64_t row, int64_t c) const {
    W sum = bias == nullptr ? W(0) : widen(bias[c]);
    for (int64_t j = 0; j < e.K; ++j)
      if (const int64_t age = e.K - 1 - j; joins(row, age)) sum += widen(w[c * e.K + j]) * widen(x[(row - age) * e.C + c]);
    return sum;
  }
};

template <class T>
struct ConvForward {
  Conv<T> conv;
  T* y;
  __device__ void operator()(int64_t i) const {
    y[i] = narrow<T>(conv.activated(conv.sum(i / conv.e.C, i % conv.e.C)));
  }
};

// g = dy * act'(z)
template <class T>
struct ConvSlope {
  Conv<T> conv;
  const T* dy;
  Wide<T>* g;
  __device__ void operator()(int64_t i) const {
    const Wide<T> d = widen(dy[i]);
    g[i] = conv.e.has_silu ? d * silu_derivative(conv.sum(i / conv.e.C, i % conv.e.C)) : d;
  }
};

template <class T>
struct ConvInputGrad {
  Conv<T> conv;
  const Wide<T>* g;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const ConvShape& e = conv.e;
    const int64_t row = i / e.C, c = i % e.C, later = e.T - row % e.T;
    Wide<T> sum = 0;
    for (int64_t age = 0; age < e.K && age < later; ++age)
      if (conv.joins(row + age, age)) sum += widen(conv.w[c * e.K + e.K - 1 - age]) * g[(row + age) * e.C + c];
    dx[i] = narrow<T>(sum);
  }
};

// Sums of a chunk of rows, [K + 1][chunks][C]: of the taps and of g. An index is a chunk and a channel.
template <class T>
struct ConvChunkSums {
  using W = Wide<T>;
  Conv<T> conv;
  const W* g;
  ColumnChunks chunks;
  W* partial;
  __device__ void operator()(int64_t i) const {
    const int64_t K = conv.e.K, C = conv.e.C, chunk = i / C, c = i % C;
    const int64_t begin = chunk * chunks.rows_per_chunk;
    const int64_t end = begin + chunks.rows_per_chunk < chunks.rows ? begin + chunks.rows_per_chunk : chunks.rows;
    W sums[kMostTaps + 1] = {};
    for (int64_t row = begin; row < end; ++row) {
      const W slope = g[row * C + c];
      for (int j = 0; j < kMostTaps; ++j)
        if (j < K && conv.joins(row, K - 1 - j)) sums[j] += slope * widen(conv.x[(row - K + 1 + j) * C + c]);
      sums[kMostTaps] += slope;
    }
    for (int j = 0; j < kMostTaps; ++j)
      if (j < K) partial[(j * chunks.chunks + chunk) * C + c] = sums[j];
    partial[(K * chunks.chunks + chunk) * C + c] = sums[kMostTaps];
  }
};

// The chunks in order. An index is a channel and a tap, or the bias.
template <class T>
struct ConvTotals {
  const Wide<T>* partial;
  int64_t chunks, C, K;
  T *dw, *dbias;  // dbias may be null
  __device__ void operator()(int64_t i) const {
    const int64_t c = i / (K + 1), j = i % (K + 1);
    Wide<T> sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[(j * chunks + chunk) * C + c];
    if (j < K)
      dw[c * K + j] = narrow<T>(sum);
    else if (dbias != nullptr)
      dbias[c] = narrow<T>(sum);
  }
};

// The tokens of a row, one channel. An index is a row and a channel.
template <class T>
struct ConvRows {
  using W = Wide<T>;
  Conv<T> conv;
  RowTokens tokens;
  const int32_t* position;
  W* state;
  T* y;
  __device__ void operator()(int64_t i) const {
    const int64_t K = conv.e.K, C = conv.e.C, row = i / C, c = i % C;
    const int32_t count = tokens.count[row];
    if (count == 0) return;
    W* const past = state + row * (K - 1) * C + c;
    W seen[kMostTaps], taps[kMostTaps];
    for (int j = 0; j < kMostTaps; ++j) {
      seen[j] = j + 1 < K ? past[j * C] : W(0);
      taps[j] = j < K ? widen(conv.w[c * K + j]) : W(0);
    }
    const W bias = conv.bias == nullptr ? W(0) : widen(conv.bias[c]);
    for (int32_t n = 0; n < count; ++n) {
      const int64_t token = tokens.list[row * tokens.tokens + n];
      const W newest = widen(conv.x[token * C + c]);
      const bool starts = position[token] == 0;
      W sum = bias;
      for (int j = 0; j < kMostTaps; ++j) {
        if (starts) seen[j] = W(0);
        if (j + 1 == K) seen[j] = newest;
        if (j < K) sum += taps[j] * seen[j];
      }
      y[token * C + c] = narrow<T>(conv.activated(sum));
      for (int j = 0; j + 1 < kMostTaps; ++j) seen[j] = seen[j + 1];
    }
    for (int j = 0; j < kMostTaps; ++j)
      if (j + 1 < K) past[j * C] = seen[j];
  }
};

}  // namespace

// x [B, T, C], w [C, K], bias [C], segments [B, T] -> y [B, T, C]
Result<PreparedKernel> prepare_causal_conv(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const ConvShape e(spec, 0);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, e.elements(),
                                      ConvForward<T>{Conv<T>(e, args, 0), args.out<T>(0)});
                        }));
  });
}

// dy [B, T, C] and those operands -> dx [B, T, C], dw [C, K], dbias [C]
Result<PreparedKernel> prepare_causal_conv_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const ConvShape e(spec, 1);
    const ColumnChunks chunks(e.B * e.T, e.C);
    const int64_t slope_bytes = (e.elements() * static_cast<int64_t>(sizeof(W)) + 255) / 256 * 256;
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          const Conv<T> conv(e, args, 1);
          W* const g = static_cast<W*>(args.workspace);
          W* const partial = reinterpret_cast<W*>(static_cast<char*>(args.workspace) + slope_bytes);
          launch_each(args.stream, e.elements(), ConvSlope<T>{conv, args.in<T>(0), g});
          launch_each(args.stream, e.elements(), ConvInputGrad<T>{conv, g, args.out<T>(0)});
          launch_each(args.stream, chunks.chunks * e.C, ConvChunkSums<T>{conv, g, chunks, partial});
          launch_each(args.stream, e.C * (e.K + 1),
                      ConvTotals<T>{partial, chunks.chunks, e.C, e.K, args.out<T>(1),
                                    e.has_bias ? args.out<T>(2) : nullptr});
        }),
        slope_bytes + chunks.workspace_bytes<W>(static_cast<int>(e.K) + 1));
  });
}

// state [R, K - 1, C], x [B, N, C], w [C, K], bias [C], row, position [B, N] -> y [B, N, C], state
Result<PreparedKernel> prepare_causal_conv_rows(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    ConvShape e(spec, 1);
    e.has_segments = false;
    const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T;
    const int64_t state_bytes = spec.input_elements(0) * static_cast<int64_t>(sizeof(W));
    const int row = spec.input_count() - 2;
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) -> Status {
                          const RowTokens lists(R, tokens, args.in<int32_t>(row), args.workspace);
                          TSR_RETURN_IF_ERROR(begin_rows(args, lists, args.out<T>(0), e.C, state_bytes));
                          launch_each(args.stream, R * e.C,
                                      ConvRows<T>{Conv<T>(e, args, 1), lists, args.in<int32_t>(row + 1), args.out<W>(1),
                                                  args.out<T>(0)});
                          return {};
                        }),
                        RowTokens::bytes(R, tokens));
  });
}

}  // namespace tessera::cuda
