#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [B, T, H, D], positions [B, T] -> y [B, T, H, D]. One angle serves the pair i of all heads of a position.
Result<PreparedKernel> prepare_rope(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1], H = dims[2], D = dims[3], half = D / 2;
    const double log_theta = std::log(spec.f64("theta")), sign = spec.i64("inverse") == 1 ? -1 : 1;
    const bool interleaved = spec.string("style") == "interleaved";
    auto launch = [=](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const int32_t* positions = args.in<int32_t>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows, row_grain(H * D), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          for (int64_t i = 0; i < half; ++i) {
            const double angle =
                sign * double(positions[r]) * std::exp(-log_theta * double(2 * i) / double(D));
            const double cosine = std::cos(angle), sine = std::sin(angle);
            const int64_t u = interleaved ? 2 * i : i, v = interleaved ? 2 * i + 1 : i + half;
            for (int64_t at = r * H * D; at < (r + 1) * H * D; at += D) {
              const double xu = double(x[at + u]), xv = double(x[at + v]);
              y[at + u] = T(xu * cosine - xv * sine);
              y[at + v] = T(xu * sine + xv * cosine);
            }
          }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows * H * D));
  });
}

}  // namespace tessera::cpu
