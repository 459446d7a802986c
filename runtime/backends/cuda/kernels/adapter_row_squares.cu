// Squares of the norms of a weight with its low-rank adapter: a team a row.
#include "runtime/backends/cuda/kernels/block_weight.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/quantized_weight.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// The adapter's contribution to element (n, k).
template <class T>
struct AdapterPart {
  using W = Wide<T>;
  const T *a, *b;
  int64_t N, K, R;
  bool trans;
  W factor;
  __device__ W at(int64_t n, int64_t k) const {
    W sum = 0;
    for (int64_t r = 0; r < R; ++r)
      sum += widen(b[trans ? n * R + r : r * N + n]) * widen(a[trans ? r * K + k : k * R + r]);
    return factor * sum;
  }
};

// For a weight of floats S.
template <class T, class S>
struct FloatRowSquares {
  using W = Wide<T>;
  const S* w;
  AdapterPart<T> adapter;
  T* out;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t n) const {
    W sum = 0;
    team.each(adapter.K, [&](int64_t k) {
      const W whole =
          static_cast<W>(widen(w[adapter.trans ? n * adapter.K + k : k * adapter.N + n])) + adapter.at(n, k);
      sum += whole * whole;
    });
    sum = team.sum(sum);
    if (team.rank == 0) out[n] = narrow<T>(sum);
  }
};

// For a weight of blocks, one per thread at a time.
template <class T, class Block>
struct BlockRowSquares {
  using W = Wide<T>;
  const uint8_t* w;
  AdapterPart<T> adapter;
  T* out;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t n) const {
    const int64_t blocks = adapter.K / Block::kElements;
    W sum = 0;
    team.each(blocks, [&](int64_t i) {
      float values[Block::kElements];
      load_block<Block>(w, n * blocks + i, values);
      for (int k = 0; k < Block::kElements; ++k) {
        const W whole = static_cast<W>(values[k]) + adapter.at(n, i * Block::kElements + k);
        sum += whole * whole;
      }
    });
    sum = team.sum(sum);
    if (team.rank == 0) out[n] = narrow<T>(sum);
  }
};

}  // namespace

// w [N, K] or [K, N] in any type, a, b -> [N]
Result<PreparedKernel> prepare_adapter_row_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    AdapterPart<T> part{};
    part.trans = spec.i64("trans_w") == 1;
    part.N = spec.output_elements(0);
    part.K = spec.input_dims(0)[part.trans ? 1 : 0];
    part.R = spec.input_dims(1)[part.trans ? 0 : 1];
    part.factor = static_cast<Wide<T>>(spec.f64("factor"));
    const auto adapter_of = [part](const LaunchArgs& args) {
      AdapterPart<T> adapter = part;
      adapter.a = args.in<T>(1);
      adapter.b = args.in<T>(2);
      return adapter;
    };
    const DType stored = spec.input_dtype(0);
    if (stored == spec.input_dtype(1))
      return by_rows(spec, part.N, part.K, [=](const LaunchArgs& args) {
        return FloatRowSquares<T, T>{args.in<T>(0), adapter_of(args), args.out<T>(0)};
      });
    if (stored == DType::kBF16)
      return by_rows(spec, part.N, part.K, [=](const LaunchArgs& args) {
        return FloatRowSquares<T, __nv_bfloat16>{args.in<__nv_bfloat16>(0), adapter_of(args), args.out<T>(0)};
      });
#ifndef TSR_FEW_TYPES
    if (stored == DType::kF16)
      return by_rows(spec, part.N, part.K, [=](const LaunchArgs& args) {
        return FloatRowSquares<T, __half>{args.in<__half>(0), adapter_of(args), args.out<T>(0)};
      });
#endif
    return dispatch_block_weight(stored, [&](auto block) -> Result<PreparedKernel> {
      using Block = decltype(block);
      return by_rows(spec, part.N, part.K / Block::kElements, [=](const LaunchArgs& args) {
        return BlockRowSquares<T, Block>{args.in<uint8_t>(0), adapter_of(args), args.out<T>(0)};
      });
    });
  });
}

}  // namespace tessera::cuda
