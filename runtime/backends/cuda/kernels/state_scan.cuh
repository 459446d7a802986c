// ScanShape, ScanOperands: sizes and operands of a scan of tokens with a state for each value head; blocks that have some
// columns of a state.
#pragma once

#include <cmath>
#include <type_traits>

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

enum class ScanRule : uint8_t { kAdd, kDelta, kGeneral };

struct ScanShape {
  int64_t B, T, G, K, H, V;
  bool decays_by_channel;
  ScanRule rule;
  double scale;

  // q is operand `q`, followed by k, v, log_decay, and beta or with rule general a, b.
  ScanShape(const KernelSpec& spec, int q)
      : B(spec.input_dims(q)[0]),
        T(spec.input_dims(q)[1]),
        G(spec.input_dims(q)[2]),
        K(spec.input_dims(q)[3]),
        H(spec.input_dims(q + 2)[2]),
        V(spec.input_dims(q + 2)[3]),
        decays_by_channel(spec.input_dims(q + 3).size() == 4),
        rule(spec.string("rule") == "general" ? ScanRule::kGeneral
             : spec.string("rule") == "delta" ? ScanRule::kDelta
                                              : ScanRule::kAdd),
        scale(spec.f64("scale")) {
    if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(K > 0 ? K : 1));
  }
  __host__ __device__ int64_t group() const { return G > 0 ? H / G : 0; }
  __host__ __device__ int64_t decays() const { return decays_by_channel ? K : 1; }
  __host__ __device__ bool is_general() const { return rule == ScanRule::kGeneral; }
  int operand_count() const { return is_general() ? 6 : 5; }
  double flops() const {
    const int of_number = is_general() ? 9 : rule == ScanRule::kDelta ? 7 : 5;
    return static_cast<double>(B * T * H) * static_cast<double>(K * V) * of_number;
  }
};

// S: the type of beta, T or Wide<T>. With rule general a and b are there in place of beta.
template <class T, class S>
struct ScanOperands {
  using W = Wide<T>;
  const T *q, *k, *v;
  const W* log_decay;
  const S* beta;
  const T *a, *b;

  ScanOperands(const ScanShape& e, const LaunchArgs& args, int first)
      : q(args.in<T>(first)),
        k(args.in<T>(first + 1)),
        v(args.in<T>(first + 2)),
        log_decay(args.in<W>(first + 3)),
        beta(e.is_general() ? nullptr : args.in<S>(first + 4)),
        a(e.is_general() ? args.in<T>(first + 4) : nullptr),
        b(e.is_general() ? args.in<T>(first + 5) : nullptr) {}
};

// f(S{}) for the type of beta, next to operands of T.
template <class T, class F>
Result<PreparedKernel> dispatch_beta(DType beta, DType operands, F&& f) {
  if constexpr (!std::is_same_v<T, Wide<T>>)
    if (beta != operands) return f(Wide<T>{});
  return f(T{});
}

// A block of kScanThreads has `kColumns` columns of a state, and as many slices of its channels as threads are left: channel
// i is of slice i % slices. A warp's lanes have adjacent columns, then adjacent slices.
inline constexpr int kScanThreads = 256;
template <int kColumns>
struct ScanBlock {
  static constexpr int kSlices = kScanThreads / kColumns, kWarps = kScanThreads / 32;
  int column, slice;
  __device__ ScanBlock()
      : column(static_cast<int>(threadIdx.x) % kColumns), slice(static_cast<int>(threadIdx.x) / kColumns) {}

  // The sum over the slices of each column, in all of its threads. `part` [kWarps * kColumns] must not be written again before
  // another barrier.
  template <class W>
  __device__ W sum_slices(W value, W* part) const {
#pragma unroll
    for (int lane = kColumns; lane < 32; lane *= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 < kColumns) part[warp * kColumns + column] = value;
    __syncthreads();
    W sum = part[column];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) sum += part[other * kColumns + column];
    return sum;
  }
  // The sum over the columns of each slice, in all of its threads.
  template <class W>
  __device__ W sum_columns(W value) const {
#pragma unroll
    for (int lane = 1; lane < kColumns; lane *= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
  }
};

}  // namespace tessera::cuda
