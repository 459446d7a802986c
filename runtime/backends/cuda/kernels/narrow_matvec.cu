// narrow_matmul of up to 4 rows, as decoding makes them: bound by reading the weight. A warp sums kEach rows
// of it, a lane a chunk of each at a time; the numbers are widened in registers.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/narrow_weight.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

constexpr int kMostRows = 4, kWarps = 8;

template <class T>
struct NarrowOperands {
  const T* x;
  const uint8_t* w;
  const __half* scale;  // null for none
  const T* bias;        // null for none
  T* y;
  int64_t N, K, row_bytes, groups, group;
};

// Every sum in one order, whatever the grid.
template <class T, class Weight, int kM, int kEach>
__global__ void __launch_bounds__(kWarps * 32) narrow_matvec_kernel(NarrowOperands<T> o) {
  constexpr int kNumbers = Weight::kNumbers, kRuns = kNumbers / 8;
  const Team<32> team{static_cast<int>(threadIdx.x) % 32};
  const int64_t n0 = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * kEach;
  float sum[kM][kEach] = {};
  if (n0 < o.N) {
#pragma unroll 2
    for (int64_t c = team.rank; c < o.K / kNumbers; c += 32) {
      float x[kM][kRuns][8];
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int r = 0; r < kRuns; ++r) load_run(o.x + m * o.K + Weight::run(c, r), x[m][r]);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t n = n0 + j < o.N ? n0 + j : o.N - 1;  // a row read twice is not stored twice
        float weight[kNumbers];
        Weight::widen(o.w + n * o.row_bytes + c * Weight::kBytes, weight);
        float scale = 1;
        if constexpr (Weight::kScaled) scale = widen(o.scale[n * o.groups + Weight::run(c, 0) / o.group]);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          float part = 0;
#pragma unroll
          for (int i = 0; i < kNumbers; ++i) part += weight[i] * x[m][i / 8][i % 8];
          sum[m][j] += scale * part;
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      float total = team.sum(sum[m][j]);
      const int64_t n = n0 + j;
      if (team.rank == 0 && n < o.N) {
        if (o.bias != nullptr) total += widen(o.bias[n]);
        o.y[m * o.N + n] = narrow<T>(total);
      }
    }
}

// Rows a warp: four where the weight has enough of them to fill any device (two blocks of 8 warps for each of
// 132 multiprocessors), else one, so that more warps read.
template <class T, class Weight, int kM>
void launch_rows_of(cudaStream_t stream, const NarrowOperands<T>& o) {
  const auto blocks = [&](int64_t each) {
    return static_cast<unsigned>((o.N + kWarps * each - 1) / (kWarps * each));
  };
  if (blocks(4) >= 264)
    narrow_matvec_kernel<T, Weight, kM, 4><<<blocks(4), kWarps * 32, 0, stream>>>(o);
  else if (blocks(2) >= 264)
    narrow_matvec_kernel<T, Weight, kM, 2><<<blocks(2), kWarps * 32, 0, stream>>>(o);
  else
    narrow_matvec_kernel<T, Weight, kM, 1><<<blocks(1), kWarps * 32, 0, stream>>>(o);
}

}  // namespace

// x [M, K], w [N, K], scale [N, G], bias [N] -> y [M, N]
Result<Prepared> prepare_narrow_matvec(const KernelSpec& spec) {
  if (spec.input_dtype(0) == DType::kF64)
    return Status(StatusCode::kUnsupported, "f64: this kernel sums in f32");
  const NarrowShape shape = narrow_shape(spec);
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, double>) {
      return Status(StatusCode::kUnsupported, "f64");
    } else {
      return dispatch_weight(shape.dtype, [&](auto weight) -> Result<Prepared> {
        using Weight = decltype(weight);
        // Rows begin at multiples of 16 bytes, and no chunk lies in two groups.
        const int64_t unit = shape.dtype == DType::kU8 ? 32 : Weight::kNumbers;
        if (shape.M < 1 || shape.M > kMostRows || shape.N < 1 || shape.K % unit != 0 ||
            (Weight::kScaled && shape.group() % unit != 0) || shape.N > int64_t{1} << 31)
          return Status(StatusCode::kUnsupported,
                        format("{} x {} x {} in groups of {}: up to {} rows, groups of a multiple of {}",
                               shape.M, shape.N, shape.K, shape.group(), int64_t{kMostRows}, unit));
        TSR_ASSIGN_OR_RETURN(Prepared other, prepare_narrow_matmul(spec));
        auto launch = [shape](const LaunchArgs& args) {
          const NarrowOperands<T> o{args.in<T>(0),
                                    args.in<uint8_t>(1),
                                    Weight::kScaled ? args.in<__half>(2) : nullptr,
                                    shape.bias < 0 ? nullptr : args.in<T>(shape.bias),
                                    args.out<T>(0),
                                    shape.N,
                                    shape.K,
                                    Weight::row_bytes(shape.K),
                                    shape.groups,
                                    shape.group()};
          switch (shape.M) {
            case 1: return launch_rows_of<T, Weight, 1>(args.stream, o);
            case 2: return launch_rows_of<T, Weight, 2>(args.stream, o);
            case 3: return launch_rows_of<T, Weight, 3>(args.stream, o);
            default: return launch_rows_of<T, Weight, 4>(args.stream, o);
          }
        };
        return memory_bound(spec, where_aligned(spec, make_kernel(launch), std::move(other.kernel)));
      });
    }
  });
}

}  // namespace tessera::cuda
