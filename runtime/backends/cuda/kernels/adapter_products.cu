// adapter_shrink, adapter_rows, adapter_expand and adapter_outer: plain kernels. A team computes a number of the first, a thread one
// of the second and third, and a thread some ranks of a column of the last.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// T: of tokens, F: of factors.
template <class T, class F>
struct AdapterShrink {
  using W = Wide<T>;
  const T* x;
  const F* a;
  const int32_t* adapter;
  W* low;
  int64_t S, R, K;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t token = row / R, slot = adapter[token];
    W sum = 0;
    if (slot >= 0 && slot < S)  // the same for all of the team
      team.each(K, [&](int64_t k) {
        sum += static_cast<W>(widen(x[token * K + k])) * static_cast<W>(widen(a[(slot * R + row % R) * K + k]));
      });
    sum = team.sum(sum);
    if (team.rank == 0) low[row] = sum;
  }
};

// F: of factors, W: of sums.
template <class F, class W>
struct AdapterRows {
  const int32_t* ids;
  const F* a;
  const int32_t* adapter;
  W* low;
  int64_t S, V, R;
  __device__ void operator()(int64_t i) const {
    const int64_t token = i / R, slot = adapter[token], row = ids[token];
    const bool has = slot >= 0 && slot < S && row >= 0 && row < V;
    low[i] = has ? static_cast<W>(widen(a[(slot * V + row) * R + i % R])) : W(0);
  }
};

template <class T, class F>
struct AdapterExpand {
  using W = Wide<T>;
  const W* low;
  const F* b;
  const int32_t* adapter;
  const T* base;
  T* y;
  int64_t S, R, N;
  __device__ void operator()(int64_t i) const {
    const int64_t token = i / N, slot = adapter[token];
    if (slot < 0 || slot >= S) {
      y[i] = base[i];
      return;
    }
    W sum = 0;
    for (int64_t r = 0; r < R; ++r) sum += low[token * R + r] * static_cast<W>(widen(b[(slot * R + r) * N + i % N]));
    y[i] = narrow<T>(static_cast<W>(widen(base[i])) + sum);
  }
};

// low [B, T, R], x [B, T, K], adapter [B, T] -> out [S, R, K]; sum is null for zeros. A row of T tokens is summed by itself.
template <class T>
struct AdapterOuter {
  static constexpr int kRanks = 8;
  using W = Wide<T>;
  const W* low;
  const T* x;
  const int32_t* adapter;
  const W* sum;
  W* out;
  int64_t rows, tokens, R, K, tiles;  // tiles of kRanks ranks
  __device__ void operator()(int64_t i) const {
    const int64_t k = i % K, slot = i / K / tiles, first = i / K % tiles * kRanks, at = (slot * R + first) * K + k;
    const int ranks = static_cast<int>(R - first < kRanks ? R - first : kRanks);
    W total[kRanks];
#pragma unroll
    for (int m = 0; m < kRanks; ++m) total[m] = sum != nullptr && m < ranks ? sum[at + m * K] : W(0);
    for (int64_t row = 0; row < rows; ++row) {
      W part[kRanks] = {};
      bool any = false;
      for (int64_t t = row * tokens; t < (row + 1) * tokens; ++t) {
        if (adapter[t] != slot) continue;
        any = true;
        const W value = static_cast<W>(widen(x[t * K + k]));
#pragma unroll
        for (int m = 0; m < kRanks; ++m)
          if (m < ranks) part[m] += low[t * R + first + m] * value;
      }
      if (!any) continue;
#pragma unroll
      for (int m = 0; m < kRanks; ++m) total[m] += part[m];
    }
#pragma unroll
    for (int m = 0; m < kRanks; ++m)
      if (m < ranks) out[at + m * K] = total[m];
  }
};

// f(T{}, F{}) for tokens of type T and factors of type F: that of sums, or 16 bits.
template <class Body>
Result<PreparedKernel> dispatch_factors(DType tokens, DType factors, Body&& body) {
  return dispatch_float(tokens, [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    if (factors == DType::kBF16) return body(zero, __nv_bfloat16{});
#ifndef TSR_FEW_TYPES
    if (factors == DType::kF16) return body(zero, __half{});
#endif
    if (factors != (std::is_same_v<Wide<T>, double> ? DType::kF64 : DType::kF32))
      return Status(StatusCode::kUnsupported, format("factors of {} with {}", to_text(factors), to_text(tokens)));
    return body(zero, Wide<T>{});
  });
}

}  // namespace

// x [T, K], a [S, R, K], adapter [T] -> low [T, R]. `adapter` is untrusted: slots that are not there give 0.
Result<PreparedKernel> prepare_adapter_shrink(const KernelSpec& spec) {
  const auto dims = spec.input_dims(1);
  const int64_t rows = spec.output_elements(0), S = dims[0], R = dims[1], K = dims[2];
  return dispatch_factors(spec.input_dtype(0), spec.input_dtype(1), [&](auto zero, auto stored) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using F = decltype(stored);
    return by_rows(spec, rows, K, [=](const LaunchArgs& args) {
      return AdapterShrink<T, F>{args.in<T>(0), args.in<F>(1), args.in<int32_t>(2), args.out<Wide<T>>(0), S, R, K};
    });
  });
}

// ids [T], a [S, V, R], adapter [T] -> low [T, R]. Both indices are untrusted: slots and rows that are not there give 0.
Result<PreparedKernel> prepare_adapter_rows(const KernelSpec& spec) {
  const auto dims = spec.input_dims(1);
  const int64_t count = spec.output_elements(0), S = dims[0], V = dims[1], R = dims[2];
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, count,
                                      AdapterRows<F, Wide<F>>{args.in<int32_t>(0), args.in<F>(1), args.in<int32_t>(2),
                                                              args.out<Wide<F>>(0), S, V, R});
                        }));
  });
}

// low [T, R], b [S, R, N], adapter [T], base [T, N] -> y [T, N]. `adapter` is untrusted: without a slot y is base.
Result<PreparedKernel> prepare_adapter_expand(const KernelSpec& spec) {
  const auto dims = spec.input_dims(1);
  const int64_t count = spec.output_elements(0), S = dims[0], R = dims[1], N = dims[2];
  return dispatch_factors(spec.input_dtype(3), spec.input_dtype(1), [&](auto zero, auto stored) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using F = decltype(stored);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, count,
                                      AdapterExpand<T, F>{args.in<Wide<T>>(0), args.in<F>(1), args.in<int32_t>(2),
                                                          args.in<T>(3), args.out<T>(0), S, R, N});
                        }));
  });
}

namespace {

Result<PreparedKernel> prepare_outer(const KernelSpec& spec, bool from_zero) {
  const auto dims = spec.output_dims(0), token_dims = spec.input_dims(2);
  const int64_t S = dims[0], R = dims[1], K = dims[2];
  const int64_t tokens = token_dims.empty() ? 1 : token_dims.back(), rows = tokens > 0 ? spec.input_elements(2) / tokens : 0;
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using Body = AdapterOuter<T>;
    using W = typename Body::W;
    const int64_t tiles = (R + Body::kRanks - 1) / Body::kRanks;
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, S * tiles * K,
                                      Body{args.in<W>(0), args.in<T>(1), args.in<int32_t>(2),
                                           from_zero ? nullptr : args.in<W>(3), args.out<W>(0), rows, tokens, R, K, tiles});
                        }));
  });
}

}  // namespace

// low [..., T, R], x [..., T, K], adapter [..., T], sum [S, R, K] -> sum. `adapter` is untrusted: other slots count for none.
Result<PreparedKernel> prepare_adapter_outer(const KernelSpec& spec) { return prepare_outer(spec, false); }

Result<PreparedKernel> prepare_adapter_outer_part(const KernelSpec& spec) { return prepare_outer(spec, true); }

}  // namespace tessera::cuda
