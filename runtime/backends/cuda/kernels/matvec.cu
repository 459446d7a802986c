// Products of a few rows with a transposed matrix, as decoding makes them: bound by reading the matrix, which
// a warp does four rows of at a time, 16 bytes a lane.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/matmul_finish.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

constexpr int kMostRows = 4, kEach = 4, kWarps = 8;

// x [kM, K], w [N, K] -> y [kM, N]; every sum in one order.
template <class T, int kM>
__global__ void __launch_bounds__(kWarps * 32)
    matvec_kernel(const T* x, const T* w, int64_t N, int64_t K, StoreActivated<T> store) {
  using W = Wide<T>;
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
  const Team<32> team{static_cast<int>(threadIdx.x) % 32};
  const int64_t n0 = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * kEach;
  const int there = N - n0 < kEach ? static_cast<int>(N > n0 ? N - n0 : 0) : kEach;
  W sum[kM][kEach] = {};
  if (there == kEach) {
#pragma unroll 2
    for (int64_t k = int64_t{team.rank} * kVec; k < K; k += 32 * kVec) {
      W row[kEach][kVec], left[kVec];
#pragma unroll
      for (int n = 0; n < kEach; ++n) load_pack(w + (n0 + n) * K + k, row[n]);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        load_pack(x + m * K + k, left);
#pragma unroll
        for (int n = 0; n < kEach; ++n)
#pragma unroll
          for (int i = 0; i < kVec; ++i) sum[m][n] += left[i] * row[n][i];
      }
    }
  } else {
    for (int64_t k = int64_t{team.rank} * kVec; k < K; k += 32 * kVec) {
      W row[kVec], left[kVec];
      for (int m = 0; m < kM; ++m) {
        load_pack(x + m * K + k, left);
#pragma unroll
        for (int n = 0; n < kEach; ++n) {
          if (n >= there) continue;
          load_pack(w + (n0 + n) * K + k, row);
          for (int i = 0; i < kVec; ++i) sum[m][n] += left[i] * row[i];
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const W total = team.sum(sum[m][n]);
      if (team.rank == 0 && n < there) store(0, m, n0 + n, total);
    }
}

template <class T, int kM>
void launch_matvec(cudaStream_t stream, const T* x, const T* w, int64_t N, int64_t K,
                   const StoreActivated<T>& store) {
  const int64_t blocks = (N + kWarps * kEach - 1) / (kWarps * kEach);
  matvec_kernel<T, kM><<<static_cast<unsigned>(blocks), kWarps * 32, 0, stream>>>(x, w, N, K, store);
}

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N], pre [M, N]
Result<Prepared> prepare_matvec(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const MatmulActivation activation, matmul_activation(spec.string("activation")));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const bool has_pre = spec.output_count() == 2;
    const bool has_bias = spec.input_count() == 3 && spec.factor('k').begin[0] == 0;
    const int64_t K = spec.input_dims(0).back(), N = spec.output_dims(0).back();
    const int64_t M = N == 0 ? 0 : spec.output_elements(0) / N;
    constexpr int64_t kVec = 16 / static_cast<int64_t>(sizeof(T));
    if (spec.i64("trans_w") != 1 || M < 1 || M > kMostRows || K % kVec != 0 || N > int64_t{1} << 31)
      return Status(StatusCode::kUnsupported,
                    format("{} x {} x {}: up to {} rows with a transposed matrix, rows of a multiple of {}",
                           M, N, K, int64_t{kMostRows}, kVec));
    TSR_ASSIGN_OR_RETURN(Prepared other, prepare_matmul(spec));
    auto launch = [=](const LaunchArgs& args) {
      const StoreActivated<T> store{has_bias ? args.in<T>(2) : nullptr, args.out<T>(0),
                                    has_pre ? args.out<T>(1) : nullptr, N, activation};
      const T *x = args.in<T>(0), *w = args.in<T>(1);
      switch (M) {
        case 1: return launch_matvec<T, 1>(args.stream, x, w, N, K, store);
        case 2: return launch_matvec<T, 2>(args.stream, x, w, N, K, store);
        case 3: return launch_matvec<T, 3>(args.stream, x, w, N, K, store);
        default: return launch_matvec<T, 4>(args.stream, x, w, N, K, store);
      }
    };
    return memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)));
  });
}

}  // namespace tessera::cuda
