#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"

namespace tessera::cpu {

// x [M, K], w [N, K], scale [N, G], bias [N] -> y [M, N]. Sums in double, k ascending.
Result<PreparedKernel> prepare_quantized_matmul(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const QuantizedMatmulShape shape = quantized_matmul_shape(spec);
    auto kernel = make_kernel([shape](const LaunchArgs& args) {
      const T *x = args.in<T>(0), *bias = shape.bias < 0 ? nullptr : args.in<T>(shape.bias);
      const uint16_t* scale = shape.has_scale() ? args.in<uint16_t>(2) : nullptr;
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(shape.N, 16, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n)
          for (int64_t m = 0; m < shape.M; ++m) {
            double sum = bias ? static_cast<double>(bias[n]) : 0;
            for (int64_t k = 0; k < shape.K; ++k) {
              double weight = weight_number(shape, args.inputs[1], n, k);
              if (scale) weight *= f32_from_f16(scale[n * shape.groups + k / shape.group()]);
              sum += static_cast<double>(x[m * shape.K + k]) * weight;
            }
            y[m * shape.N + n] = static_cast<T>(sum);
          }
      });
    });
    const double flops =
        2.0 * static_cast<double>(shape.M) * static_cast<double>(shape.N) * static_cast<double>(shape.K);
    return reference_kernel(spec, flops, std::move(kernel));
  });
}

}  // namespace tessera::cpu
