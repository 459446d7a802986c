#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [B, T, H, D], positions [B, T] -> y [B, T, H, D]: a factor for each position, in f64.
Result<PreparedKernel> prepare_position_scale(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1], row = dims[2] * dims[3];
    auto launch = [=, beta = spec.f64("beta"), context = spec.i64("context"), offset = spec.i64("offset")](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const int32_t* positions = args.in<int32_t>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows, row_grain(row), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const double steps = std::floor(double(positions[r] + offset) / double(context));
          const double factor = 1 + beta * std::log1p(steps);
          for (int64_t i = r * row; i < (r + 1) * row; ++i) y[i] = T(double(x[i]) * factor);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(rows * row));
  });
}

}  // namespace tessera::cpu
