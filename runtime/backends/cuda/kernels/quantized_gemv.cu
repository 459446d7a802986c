// quantized_matmul of up to 4 rows with weights in 16 bits: numbers are widened in registers (gemv.cuh).
#include "runtime/backends/cuda/kernels/gemv.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

// x [M, K], w [N, K], bias [N] -> y [M, N]
Result<PreparedKernel> prepare_quantized_gemv(const KernelSpec& spec) {
  if (spec.input_dtype(0) == DType::kF64)
    return Status(StatusCode::kUnsupported, "f64: this kernel sums in f32");
  const QuantizedMatmulShape shape = quantized_matmul_shape(spec);
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, double>) {
      return Status(StatusCode::kUnsupported, "f64");
    } else {
      return dispatch_weight(shape.dtype, [&](auto weight) -> Result<PreparedKernel> {
        using Weight = decltype(weight);
        // Rows begin at multiples of 16 bytes.
        if (shape.M < 1 || shape.M > kGemvRows || shape.N < 1 || shape.K % Weight::kNumbers != 0 ||
            shape.N > INT32_MAX / 2 || shape.K > INT32_MAX)
          return Status(StatusCode::kUnsupported,
                        format("{} x {} x {}: up to {} rows, with rows of a multiple of {}", shape.M, shape.N,
                               shape.K, kGemvRows, Weight::kNumbers));
        TSR_ASSIGN_OR_RETURN(PreparedKernel other, prepare_quantized_matmul(spec));
        ProductStep product{};
        product.M = shape.M;
        product.N = shape.N;
        product.K = shape.K;
        product.weight = shape.dtype;
        product.bias = shape.bias;
        return memory_bound(spec, gemv_of_product<T, Weight>(spec, product, std::move(other.kernel)));
      });
    }
  });
}

}  // namespace tessera::cuda
