#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

constexpr int64_t kChunk = 16384;  // elements of a partial sum

// A chunk's sum of squares, in double: a gradient has more elements than f32 has steps. P is double, but
// where there is one chunk alone.
template <class T, class P>
struct ChunkSquares {
  const T* x;
  P* partial;
  int64_t count;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t chunk) const {
    const int64_t begin = chunk * kChunk, left = count - begin;
    double sum = 0;
    team.each(left < kChunk ? left : kChunk, [&](int64_t i) {
      const double value = widen(x[begin + i]);
      sum += value * value;
    });
    sum = team.sum(sum);
    if (team.rank == 0) partial[chunk] = static_cast<P>(sum);
  }
};

template <class W>
struct Total {
  const double* partial;
  W* out;
  int64_t chunks;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t) const {
    double sum = 0;
    team.each(chunks, [&](int64_t i) { sum += partial[i]; });
    sum = team.sum(sum);
    if (team.rank == 0) *out = static_cast<W>(sum);
  }
};

template <class T>
struct ClipScale {
  const T *squares, *loss_scale;  // the latter null for 1
  T *scale, *norm;
  double max_norm;
  __device__ void operator()(int64_t) const {
    const double by = loss_scale != nullptr ? static_cast<double>(widen(*loss_scale)) : 1;
    const double length = sqrt(static_cast<double>(widen(*squares))) / by;
    const double factor = max_norm / (length + 1e-6);
    *scale = narrow<T>(static_cast<Wide<T>>(!isfinite(length) ? 0 : (factor < 1 ? factor : 1) / by));
    *norm = narrow<T>(static_cast<Wide<T>>(length));
  }
};

}  // namespace

Result<Prepared> prepare_sum_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t count = spec.input_elements(0), chunks = (count + kChunk - 1) / kChunk;
    if (chunks == 1)
      return memory_bound(
          spec, make_kernel([=](const LaunchArgs& args) {
            launch_rows(args.stream, 1, kChunk / 2, ChunkSquares<T, W>{args.in<T>(0), args.out<W>(0), count});
          }));
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          auto* partial = static_cast<double*>(args.workspace);
                          launch_rows(args.stream, chunks, kChunk / 2,
                                      ChunkSquares<T, double>{args.in<T>(0), partial, count});
                          launch_rows(args.stream, 1, chunks, Total<W>{partial, args.out<W>(0), chunks});
                        }),
                        chunks * static_cast<int64_t>(sizeof(double)));
  });
}

Result<Prepared> prepare_clip_scale(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const double max_norm = spec.f64("max_norm");
    const bool scaled = spec.input_count() == 2;
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, 1,
                                      ClipScale<T>{args.in<T>(0), scaled ? args.in<T>(1) : nullptr,
                                                   args.out<T>(0), args.out<T>(1), max_norm});
                        }));
  });
}

}  // namespace tessera::cuda
