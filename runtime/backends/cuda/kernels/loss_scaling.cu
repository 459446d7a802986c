#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class W>
struct LossScale {
  const W* offset;
  W* scale;
  double initial;
  __device__ void operator()(int64_t) const {
    *scale = static_cast<W>(ldexp(initial, static_cast<int>(*offset)));
  }
};

template <class W>
struct LossScaleUpdate {
  const W *offset_in, *good_in, *norm;
  W *offset_out, *good_out;
  W interval, least, most;
  __device__ void operator()(int64_t) const {
    W offset = *offset_in, good = *good_in + W(1);
    if (!isfinite(*norm)) {
      if (offset - W(1) >= least) offset -= W(1);
      good = 0;
    } else if (good >= interval) {
      if (offset + W(1) <= most) offset += W(1);
      good = 0;
    }
    *offset_out = offset;
    *good_out = good;
  }
};

}  // namespace

Result<PreparedKernel> prepare_loss_scaling(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using W = Wide<decltype(zero)>;
    const double initial = spec.f64("initial");
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, 1, LossScale<W>{args.in<W>(0), args.out<W>(0), initial});
                        }));
  });
}

Result<PreparedKernel> prepare_loss_scaling_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using W = Wide<decltype(zero)>;
    const W interval = static_cast<W>(spec.i64("interval")), least = static_cast<W>(spec.f64("least")),
            most = static_cast<W>(spec.f64("most"));
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(
                              args.stream, 1,
                              LossScaleUpdate<W>{args.in<W>(0), args.in<W>(1), args.in<W>(2), args.out<W>(0),
                                                 args.out<W>(1), interval, least, most});
                        }));
  });
}

}  // namespace tessera::cuda
