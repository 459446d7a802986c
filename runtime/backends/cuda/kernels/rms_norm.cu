#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/norm_grad.cuh"
#include "runtime/backends/cuda/kernels/norm_rows.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

// x [R, C], w [C] -> y [R, C], rstd [R]
Result<PreparedKernel> prepare_rms_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double eps = spec.f64("eps"), inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
    PreparedKernel prepared =
        by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
          return RmsNormRow<T, packed.value>{args.in<T>(0), args.in<T>(1), args.out<T>(0), args.out<W>(1),
                                             rows.cols,     W(eps),        W(inverse)};
        });
    return as_decode_step(std::move(prepared),
                          {spec.input_dtype(0), NormStep{false, rows.count, rows.cols, eps}});
  });
}

// x, addend [R, C], w [C] -> sum, y [R, C], rstd [R]
Result<PreparedKernel> prepare_add_rms_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double eps = spec.f64("eps"), inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      using Norm = RmsNormRow<T, packed.value>;
      return AddThenNorm<T, packed.value, Norm>{
          args.in<T>(0), args.in<T>(1), args.out<T>(0),
          Norm{args.out<T>(0), args.in<T>(2), args.out<T>(1), args.out<W>(2), rows.cols, W(eps), W(inverse)}};
    });
  });
}

// dy, x [R, C], w [C], rstd [R] -> dx [R, C]
Result<PreparedKernel> prepare_rms_norm_grad_input(const KernelSpec& spec) {
  return prepare_norm_grad_input<false>(spec);
}

// dy, x [R, C], rstd [R] -> dw [C]
Result<PreparedKernel> prepare_rms_norm_grad_weight(const KernelSpec& spec) {
  return prepare_norm_grad_weight<false>(spec);
}

// dy, x [R, C], w [C], rstd [R], addend [R, C] -> dx [R, C], dw [C]
Result<PreparedKernel> prepare_rms_norm_grad(const KernelSpec& spec) {
  return prepare_norm_grad<false>(spec);
}

}  // namespace tessera::cuda
