#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct ClipScale {
  const T *squares, *loss_scale;  // the latter null for 1
  T *scale, *norm;
  double planned;
  const double* max_norm_at;  // of the step; null: the planned one
  __device__ void operator()(int64_t) const {
    const double max_norm = max_norm_at != nullptr ? *max_norm_at : planned;
    const double by = loss_scale != nullptr ? static_cast<double>(widen(*loss_scale)) : 1;
    const double length = sqrt(static_cast<double>(widen(*squares))) / by;
    const double factor = max_norm / (length + 1e-6);
    *scale = narrow<T>(static_cast<Wide<T>>(!isfinite(length) ? 0 : (factor < 1 ? factor : 1) / by));
    *norm = narrow<T>(static_cast<Wide<T>>(length));
  }
};

}  // namespace

Result<PreparedKernel> prepare_clip_scale(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const double max_norm = spec.f64("max_norm");
    const int given = spec.i64("by_step") == 1 ? spec.input_count() - 1 : -1;  // operand max_norm
    const bool scaled = spec.input_count() - (given < 0 ? 0 : 1) == 2;
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          launch_each(args.stream, 1,
                      ClipScale<T>{args.in<T>(0), scaled ? args.in<T>(1) : nullptr, args.out<T>(0),
                                   args.out<T>(1), max_norm, given < 0 ? nullptr : args.in<double>(given)});
        }));
  });
}

}  // namespace tessera::cuda
