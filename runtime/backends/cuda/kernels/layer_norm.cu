#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/norm_grad.cuh"
#include "runtime/backends/cuda/kernels/norm_rows.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

// x [R, C], w, b [C] -> y [R, C], mean [R], rstd [R]
Result<PreparedKernel> prepare_layer_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double eps = spec.f64("eps"), inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
    PreparedKernel prepared =
        by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
          return LayerNormRow<T, packed.value>{args.in<T>(0),  args.in<T>(1),  args.in<T>(2),
                                               args.out<T>(0), args.out<W>(1), args.out<W>(2),
                                               rows.cols,      W(eps),         W(inverse)};
        });
    return as_decode_step(std::move(prepared),
                          {spec.input_dtype(0), NormStep{true, rows.count, rows.cols, eps}});
  });
}

// x, addend [R, C], w, b [C] -> sum, y [R, C], mean [R], rstd [R]
Result<PreparedKernel> prepare_add_layer_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double eps = spec.f64("eps"), inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      using Norm = LayerNormRow<T, packed.value>;
      return AddThenNorm<T, packed.value, Norm>{
          args.in<T>(0), args.in<T>(1), args.out<T>(0),
          Norm{args.out<T>(0), args.in<T>(2), args.in<T>(3), args.out<T>(1), args.out<W>(2), args.out<W>(3),
               rows.cols, W(eps), W(inverse)}};
    });
  });
}

// dy, x [R, C], w [C], mean, rstd [R] -> dx [R, C]
Result<PreparedKernel> prepare_layer_norm_grad_input(const KernelSpec& spec) {
  return prepare_norm_grad_input<true>(spec);
}

// dy, x [R, C], mean, rstd [R] -> dw, db [C]
Result<PreparedKernel> prepare_layer_norm_grad_weight(const KernelSpec& spec) {
  return prepare_norm_grad_weight<true>(spec);
}

// dy, x [R, C], w [C], mean, rstd [R], addend [R, C] -> dx [R, C], dw, db [C], with column_sums dx by column
Result<PreparedKernel> prepare_layer_norm_grad(const KernelSpec& spec) {
  return prepare_norm_grad<true>(spec);
}

}  // namespace tessera::cuda
