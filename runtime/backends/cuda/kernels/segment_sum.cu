#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/segment_sum.h"

namespace tessera::cuda {

namespace {

template <class T>
struct SegmentSum {
  using W = Wide<T>;
  const T* x;
  const int32_t* segments;
  T* y;
  int64_t cols;
  // The team reads the row once for each run of equal numbers.
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    for (int64_t t = 0; t < cols; ++t) {
      const int32_t segment = segments[at + t];
      if (t > 0 && segments[at + t - 1] == segment) continue;
      W sum = 0;
      team.each(cols, [&](int64_t u) {
        if (segments[at + u] == segment) sum += widen(x[at + u]);
      });
      sum = team.sum(sum);
      team.each(cols, [&](int64_t u) {
        if (segments[at + u] == segment) y[at + u] = narrow<T>(sum);
      });
    }
  }
};

}  // namespace

// x, segments [R, T] -> y [R, T]
Result<PreparedKernel> prepare_segment_sum(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_rows(spec, rows.count, rows.cols, [=](const LaunchArgs& args) {
      return SegmentSum<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), rows.cols};
    });
  });
}

}  // namespace tessera::cuda
