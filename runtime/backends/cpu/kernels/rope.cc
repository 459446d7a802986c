#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

struct Angle {
  double cosine, sine;
};

// The angle by which pair i of a head of D numbers turns at a position. Every kernel below calls it, so that all
// give the same bits.
Angle angle_of(int32_t position, int64_t i, int64_t D, double log_theta) {
  const double angle = double(position) * std::exp(-log_theta * double(2 * i) / double(D));
  return {std::cos(angle), std::sin(angle)};
}

// The heads of one position.
struct Heads {
  int64_t H, D;
  bool interleaved;
  double sign;  // -1 turns back

  // Rotates pair i of all heads.
  template <class T>
  void rotate(const T* x, T* y, int64_t i, Angle angle) const {
    const double cosine = angle.cosine, sine = sign * angle.sine;
    const int64_t u = interleaved ? 2 * i : i, v = interleaved ? 2 * i + 1 : i + D / 2;
    for (int64_t at = 0; at < H * D; at += D) {
      const double xu = double(x[at + u]), xv = double(x[at + v]);
      y[at + u] = T(xu * cosine - xv * sine);
      y[at + v] = T(xu * sine + xv * cosine);
    }
  }
};

Heads heads_of(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  return {dims[2], dims[3], spec.string("style") == "interleaved", spec.i64("inverse") == 1 ? -1.0 : 1.0};
}

}  // namespace

// x [B, T, H, D], positions [B, T] -> y [B, T, H, D]. One angle serves the pair i of all heads of a position.
Result<PreparedKernel> prepare_rope(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Heads heads = heads_of(spec);
    const int64_t rows = spec.input_dims(0)[0] * spec.input_dims(0)[1], row = heads.H * heads.D;
    auto launch = [=, log_theta = std::log(spec.f64("theta"))](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const int32_t* positions = args.in<int32_t>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows, row_grain(row), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          for (int64_t i = 0; i < heads.D / 2; ++i)
            heads.rotate(x + r * row, y + r * row, i, angle_of(positions[r], i, heads.D, log_theta));
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows * row));
  });
}

// positions [B, T] -> angles [B, T, D] f64
Result<PreparedKernel> prepare_rope_angles(const KernelSpec& spec) {
  const auto dims = spec.output_dims(0);
  const int64_t rows = dims[0] * dims[1], D = dims[2];
  auto launch = [=, log_theta = std::log(spec.f64("theta"))](const LaunchArgs& args) {
    const int32_t* positions = args.in<int32_t>(0);
    double* angles = args.out<double>(0);
    args.pool.parallel_ranges(rows, row_grain(20 * D), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t i = 0; i < D / 2; ++i) {
          const Angle angle = angle_of(positions[r], i, D, log_theta);
          angles[r * D + i] = angle.cosine;
          angles[r * D + D / 2 + i] = angle.sine;
        }
    });
  };
  return reference_kernel(spec, make_kernel(launch), 40.0 * double(rows * D));
}

// x [B, T, H, D], angles [B, T, D] f64 -> y [B, T, H, D]
Result<PreparedKernel> prepare_rope_rotate(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Heads heads = heads_of(spec);
    const int64_t rows = spec.input_dims(0)[0] * spec.input_dims(0)[1], row = heads.H * heads.D;
    auto launch = [=](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const double* angles = args.in<double>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows, row_grain(row), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const double *cosines = angles + r * heads.D, *sines = cosines + heads.D / 2;
          for (int64_t i = 0; i < heads.D / 2; ++i)
            heads.rotate(x + r * row, y + r * row, i, {cosines[i], sines[i]});
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows * row));
  });
}

}  // namespace tessera::cpu
