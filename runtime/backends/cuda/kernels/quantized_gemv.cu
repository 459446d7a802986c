// quantized_matmul of up to 4 rows: numbers are widened in registers (gemv.cuh).
#include "runtime/backends/cuda/kernels/gemv.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

// x [M, K], w [N, K], scale [N, G], bias [N] -> y [M, N]
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
        // Rows begin at multiples of 16 bytes, and no chunk spans two groups.
        const int64_t unit = shape.dtype == DType::kU8 ? 32 : Weight::kNumbers;
        if (shape.M < 1 || shape.M > kGemvRows || shape.N < 1 || shape.K % unit != 0 ||
            (Weight::kScaled && shape.group() % unit != 0) || shape.N > INT32_MAX / 2 || shape.K > kMostGemvK)
          return Status(
              StatusCode::kUnsupported,
              format(
                  "{} x {} x {} in groups of {}: up to {} rows, groups of a multiple of {}, up to {} columns",
                  shape.M, shape.N, shape.K, shape.group(), kGemvRows, unit, kMostGemvK));
        TSR_ASSIGN_OR_RETURN(PreparedKernel other, prepare_quantized_matmul(spec));
        ProductStep product{};
        product.M = shape.M;
        product.N = shape.N;
        product.K = shape.K;
        product.weight = shape.dtype;
        product.groups = shape.groups;
        product.group = shape.group();
        product.scale = Weight::kScaled ? 2 : -1;
        product.bias = shape.bias;
        return memory_bound(spec, gemv_of_product<T, Weight>(spec, product, std::move(other.kernel)));
      });
    }
  });
}

}  // namespace tessera::cuda
