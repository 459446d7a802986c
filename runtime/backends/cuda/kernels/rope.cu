#include <cmath>

#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rope.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// A block rotates one position (row). One angle serves the pair i of all heads. Works in place: a thread
// reads its pair before it stores it.
template <class T>
struct Rope {
  using W = Wide<T>;
  const T* x;
  const int32_t* positions;
  T* y;
  int64_t H, D;
  double log_theta, sign;
  bool interleaved;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t half = D / 2;
    const double position = sign * static_cast<double>(positions[row]);
    team.each(half, [&](int64_t i) {
      const auto turn = Turn<W>::of(position, i, D, log_theta);
      const int64_t u = interleaved ? 2 * i : i, v = interleaved ? 2 * i + 1 : i + half;
      for (int64_t at = row * H * D; at < (row + 1) * H * D; at += D) {
        const W xu = widen(x[at + u]), xv = widen(x[at + v]);
        y[at + u] = narrow<T>(turn.first(xu, xv));
        y[at + v] = narrow<T>(turn.second(xu, xv));
      }
    });
  }
};

// The angles of one position, which Turned reads.
template <class F>
struct Angles {
  const int32_t* positions;  // [B, T]
  const F* factors;          // null, or [1 or 2, R / 2]
  double* angles;
  int64_t T, R, switch_at;
  double log_theta, magnitude;

  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const F* divisors = factors;
    if (switch_at > 0) {
      const int32_t* sequence = positions + row / T * T;
      double largest = -1;
      team.each(T, [&](int64_t t) { largest = fmax(largest, static_cast<double>(sequence[t])); });
      if (team.max(largest) >= static_cast<double>(switch_at)) divisors += R / 2;
    }
    team.each(R / 2, [&](int64_t i) {
      double frequency = Turn<double>::frequency(i, R, log_theta);
      if (divisors != nullptr) frequency /= widen(divisors[i]);
      const auto turn = Turn<double>::by(static_cast<double>(positions[row]) * frequency);
      angles[row * R + i] = magnitude * turn.cosine;
      angles[row * R + R / 2 + i] = magnitude * turn.sine;
    });
  }
};

// Rope of the first R elements of heads of D by angles that are there.
template <class T>
struct Turned {
  using W = Wide<T>;
  const T* x;
  const double* angles;
  T* y;
  int64_t H, D, R;
  double sign;
  bool interleaved;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t half = R / 2;
    team.each(half, [&](int64_t i) {
      const Turn<W> turn{static_cast<W>(sign * angles[row * R + half + i]), static_cast<W>(angles[row * R + i])};
      const int64_t u = interleaved ? 2 * i : i, v = interleaved ? 2 * i + 1 : i + half;
      for (int64_t at = row * H * D; at < (row + 1) * H * D; at += D) {
        const W xu = widen(x[at + u]), xv = widen(x[at + v]);
        y[at + u] = narrow<T>(turn.first(xu, xv));
        y[at + v] = narrow<T>(turn.second(xu, xv));
      }
    });
    const int64_t rest = D - R;
    if (rest == 0 || x == y) return;
    team.each(H * rest, [&](int64_t i) {
      const int64_t at = (row * H + i / rest) * D + R + i % rest;
      y[at] = x[at];
    });
  }
};

// Rope with kVec pairs at a time: a block takes enough positions that each thread computes one angle,
// and rotates all heads of these positions. `half` is a multiple of kVec and at most kPackedThreads.
constexpr int kPackedThreads = 256;

template <class T, int kVec>
__global__ void __launch_bounds__(kPackedThreads) packed_rope_kernel(Rope<T> rope, int64_t rows) {
  using W = Wide<T>;
  __shared__ __align__(16) W sines[kPackedThreads], cosines[kPackedThreads];
  const int thread = static_cast<int>(threadIdx.x), half = static_cast<int>(rope.D / 2), packs = half / kVec;
  const int most = kPackedThreads / half, in_row = static_cast<int>(rope.H) * packs;
  const int64_t first = int64_t{blockIdx.x} * most, left = rows - first;
  const int positions = left < most ? static_cast<int>(left) : most;
  if (thread < positions * half) {
    const double position = rope.sign * static_cast<double>(rope.positions[first + thread / half]);
    const auto turn = Turn<W>::of(position, thread % half, rope.D, rope.log_theta);
    sines[thread] = turn.sine;
    cosines[thread] = turn.cosine;
  }
  __syncthreads();
  for (int item = thread; item < positions * in_row; item += kPackedThreads) {
    const int position = item / in_row, pack = item % packs * kVec;
    const int64_t head = (first * rope.H + item / packs) * rope.D;
    // Load the pairs' first elements, then their second ones; or both interleaved.
    const int64_t at = head + (rope.interleaved ? 2 * pack : pack), step = rope.interleaved ? kVec : half;
    W x[2][kVec], sine[kVec], cosine[kVec];
    load_pack(rope.x + at, x[0]);
    load_pack(rope.x + at + step, x[1]);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      sine[j] = sines[position * half + pack + j];
      cosine[j] = cosines[position * half + pack + j];
    }
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const Turn<W> turn{sine[j], cosine[j]};
      W& u = rope.interleaved ? x[2 * j / kVec][2 * j % kVec] : x[0][j];
      W& v = rope.interleaved ? x[2 * j / kVec][2 * j % kVec + 1] : x[1][j];
      const W turned = turn.first(u, v);
      v = turn.second(u, v);
      u = turned;
    }
    store_pack(rope.y + at, x[0]);
    store_pack(rope.y + at + step, x[1]);
  }
}

}  // namespace

// x [B, T, H, D], positions [B, T] -> y [B, T, H, D]
Result<PreparedKernel> prepare_rope(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1], H = dims[2], D = dims[3];
    const double log_theta = std::log(spec.f64("theta")), sign = spec.i64("inverse") == 1 ? -1 : 1;
    const bool interleaved = spec.string("style") == "interleaved";
    const auto rope_of = [=](const LaunchArgs& args) {
      return Rope<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), H, D, log_theta, sign, interleaved};
    };
    auto kernel =
        make_kernel([=](const LaunchArgs& args) { launch_rows(args.stream, rows, D / 2, rope_of(args)); });
    constexpr int kVec = 16 / static_cast<int>(sizeof(T));
    const int64_t half = D / 2, a_block = half == 0 ? 0 : kPackedThreads / half;
    if (D % (2 * kVec) == 0 && a_block > 0 && rows > 0 && H > 0 && H * half <= INT32_MAX / kPackedThreads) {
      auto packed = make_kernel([=](const LaunchArgs& args) {
        packed_rope_kernel<T, kVec>
            <<<static_cast<unsigned>((rows + a_block - 1) / a_block), kPackedThreads, 0, args.stream>>>(
                rope_of(args), rows);
      });
      kernel = where_aligned(spec, std::move(packed), std::move(kernel));
    }
    PreparedKernel prepared = memory_bound(spec, std::move(kernel));
    return as_decode_step(std::move(prepared),
                          {spec.input_dtype(0), RopeStep{rows, H, D, log_theta, sign, interleaved}});
  });
}

// positions [B, T], factors [1 or 2, R / 2] optional -> angles [B, T, R] f64
Result<PreparedKernel> prepare_rope_angles(const KernelSpec& spec) {
  const auto dims = spec.output_dims(0);
  const int64_t T = dims[1], rows = dims[0] * T, R = dims[2], switch_at = spec.i64("switch_at");
  const double log_theta = std::log(spec.f64("theta")), magnitude = spec.f64("magnitude");
  const bool scales = spec.input_count() == 2;
  return dispatch_float(scales ? spec.input_dtype(1) : DType::kF64, [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    return by_rows(spec, rows, R / 2, [=](const LaunchArgs& args) {
      return Angles<F>{args.in<int32_t>(0), scales ? args.in<F>(1) : nullptr,
                       args.out<double>(0), T,
                       R,                   switch_at,
                       log_theta,           magnitude};
    });
  });
}

// x [B, T, H, D], angles [B, T, R] f64 -> y [B, T, H, D]
Result<PreparedKernel> prepare_rope_rotate(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1], H = dims[2], D = dims[3], R = spec.input_dims(1)[2];
    const double sign = spec.i64("inverse") == 1 ? -1 : 1;
    const bool interleaved = spec.string("style") == "interleaved";
    return by_rows(spec, rows, D / 2, [=](const LaunchArgs& args) {
      return Turned<T>{args.in<T>(0), args.in<double>(1), args.out<T>(0), H, D, R, sign, interleaved};
    });
  });
}

}  // namespace tessera::cuda
