#include <cmath>

#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rope.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// Row = one position. One angle serves the pair i of all heads. In place too: a thread reads its pair before
// it stores it.
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

}  // namespace

// x [B, T, H, D], positions [B, T] -> y [B, T, H, D]
Result<Prepared> prepare_rope(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1], H = dims[2], D = dims[3];
    const double log_theta = std::log(spec.f64("theta")), sign = spec.i64("inverse") == 1 ? -1 : 1;
    const bool interleaved = spec.string("style") == "interleaved";
    Prepared prepared = by_rows(spec, rows, D / 2, [=](const LaunchArgs& args) {
      return Rope<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), H, D, log_theta, sign, interleaved};
    });
    return as_decode_step(std::move(prepared),
                          {spec.input_dtype(0), RopeStep{rows, H, D, log_theta, sign, interleaved}});
  });
}

}  // namespace tessera::cuda
