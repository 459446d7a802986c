#include <algorithm>
#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

struct Angle {
  double cosine, sine;
};

// The frequency of pair i of a head of D numbers. Every kernel below calls it, so that all give the same bits.
double frequency_of(int64_t i, int64_t D, double log_theta) {
  return std::exp(-log_theta * double(2 * i) / double(D));
}

// The angle by which a pair turns at a position.
Angle angle_of(int32_t position, double frequency) {
  const double angle = double(position) * frequency;
  return {std::cos(angle), std::sin(angle)};
}

// The heads of one position: the first R of their D numbers turn.
struct Heads {
  int64_t H, D, R;
  bool interleaved;
  double sign;  // -1 turns back

  // Rotates pair i of all heads.
  template <class T>
  void rotate(const T* x, T* y, int64_t i, Angle angle) const {
    const double cosine = angle.cosine, sine = sign * angle.sine;
    const int64_t u = interleaved ? 2 * i : i, v = interleaved ? 2 * i + 1 : i + R / 2;
    for (int64_t at = 0; at < H * D; at += D) {
      const double xu = double(x[at + u]), xv = double(x[at + v]);
      y[at + u] = T(xu * cosine - xv * sine);
      y[at + v] = T(xu * sine + xv * cosine);
    }
  }
  // Passes on what does not turn.
  template <class T>
  void keep_rest(const T* x, T* y) const {
    if (R == D || x == y) return;
    for (int64_t at = 0; at < H * D; at += D) std::copy(x + at + R, x + at + D, y + at + R);
  }
};

Heads heads_of(const KernelSpec& spec, int64_t rotated) {
  const auto dims = spec.input_dims(0);
  return {dims[2], dims[3], rotated, spec.string("style") == "interleaved",
          spec.i64("inverse") == 1 ? -1.0 : 1.0};
}

// The divisors of rope_angles' frequencies, by sequence.
struct Factors {
  int64_t T, pairs, switch_at;  // switch_at 0: one row for all sequences

  // The row of `factors` for the sequence whose T positions begin at `positions`.
  template <class F>
  const F* row(const F* factors, const int32_t* positions) const {
    const bool is_long = switch_at > 0 && T > 0 && *std::max_element(positions, positions + T) >= switch_at;
    return factors + (is_long ? pairs : 0);
  }
};

}  // namespace

// x [B, T, H, D], positions [B, T] -> y [B, T, H, D]. One angle serves the pair i of all heads of a position.
Result<PreparedKernel> prepare_rope(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Heads heads = heads_of(spec, spec.input_dims(0)[3]);
    const int64_t rows = spec.input_dims(0)[0] * spec.input_dims(0)[1], row = heads.H * heads.D;
    auto launch = [=, log_theta = std::log(spec.f64("theta"))](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const int32_t* positions = args.in<int32_t>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows, row_grain(row), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          for (int64_t i = 0; i < heads.D / 2; ++i)
            heads.rotate(x + r * row, y + r * row, i,
                         angle_of(positions[r], frequency_of(i, heads.D, log_theta)));
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows * row));
  });
}

// positions [B, T] -> angles [B, T, R] f64
Result<PreparedKernel> prepare_rope_angles(const KernelSpec& spec) {
  const auto dims = spec.output_dims(0);
  const int64_t T = dims[1], rows = dims[0] * T, R = dims[2];
  const bool scales = spec.input_count() == 2;
  return dispatch_float(scales ? spec.input_dtype(1) : DType::kF64, [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const Factors of{T, R / 2, spec.i64("switch_at")};
    auto launch = [=, log_theta = std::log(spec.f64("theta")),
                   magnitude = spec.f64("magnitude")](const LaunchArgs& args) {
      const int32_t* positions = args.in<int32_t>(0);
      double* angles = args.out<double>(0);
      args.pool.parallel_ranges(rows, row_grain(20 * R), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const F* factors = scales ? of.row(args.in<F>(1), positions + r / T * T) : nullptr;
          for (int64_t i = 0; i < R / 2; ++i) {
            double frequency = frequency_of(i, R, log_theta);
            if (scales) frequency /= double(factors[i]);
            const Angle angle = angle_of(positions[r], frequency);
            angles[r * R + i] = magnitude * angle.cosine;
            angles[r * R + R / 2 + i] = magnitude * angle.sine;
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 40.0 * double(rows * R));
  });
}

// x [B, T, H, D], angles [B, T, R] f64 -> y [B, T, H, D]
Result<PreparedKernel> prepare_rope_rotate(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Heads heads = heads_of(spec, spec.input_dims(1)[2]);
    const int64_t rows = spec.input_dims(0)[0] * spec.input_dims(0)[1], row = heads.H * heads.D;
    auto launch = [=](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const double* angles = args.in<double>(1);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(rows, row_grain(row), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const double *cosines = angles + r * heads.R, *sines = cosines + heads.R / 2;
          for (int64_t i = 0; i < heads.R / 2; ++i)
            heads.rotate(x + r * row, y + r * row, i, {cosines[i], sines[i]});
          heads.keep_rest(x + r * row, y + r * row);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows * row));
  });
}

}  // namespace tessera::cpu
