#include <cmath>

#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// A block scales one position (row).
template <class T>
struct PositionScale {
  const T* x;
  const int32_t* positions;
  T* y;
  int64_t row_size, context, offset;
  double beta;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const double steps = floor(static_cast<double>(positions[row] + offset) / static_cast<double>(context));
    const double factor = 1 + beta * log1p(steps);
    team.each(row_size, [&](int64_t i) {
      const int64_t at = row * row_size + i;
      y[at] = narrow<T>(static_cast<Wide<T>>(static_cast<double>(widen(x[at])) * factor));
    });
  }
};

}  // namespace

// x [B, T, H, D], positions [B, T] -> y [B, T, H, D]
Result<PreparedKernel> prepare_position_scale(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1], row = dims[2] * dims[3];
    const int64_t context = spec.i64("context"), offset = spec.i64("offset");
    return by_rows(spec, rows, row, [=, beta = spec.f64("beta")](const LaunchArgs& args) {
      return PositionScale<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), row, context, offset, beta};
    });
  });
}

}  // namespace tessera::cuda
