// adapter_shrink and adapter_expand: plain kernels. A team computes a number of the first, a thread one of the second.
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

}  // namespace tessera::cuda
