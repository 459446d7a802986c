// Matmuls of a few rows with a transposed matrix of the same type (gemv.cuh).
#include "runtime/backends/cuda/kernels/gemv.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

// Prepares `product` with operands, results and activation known; `other` serves any address and shape.
Result<PreparedKernel> prepare_rows(const KernelSpec& spec, ProductStep product, PrepareFn other) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using Weight = SameWeight<T>;
    product.K = spec.input_dims(0).back();
    product.N = spec.output_dims(0).back();
    product.M = product.N == 0 ? 0 : spec.output_elements(0) / product.N;
    product.weight = spec.input_dtype(1);
    if (spec.i64("trans_w") != 1 || product.M < 1 || product.M > kGemvRows ||
        product.K % Weight::kNumbers != 0 || product.N > INT32_MAX / 2 || product.K > INT32_MAX)
      return Status(StatusCode::kUnsupported,
                    format("{} x {} x {}: up to {} rows with a transposed matrix, rows of a multiple of {}",
                           product.M, product.N, product.K, kGemvRows, Weight::kNumbers));
    TSR_ASSIGN_OR_RETURN(PreparedKernel elsewhere, other(spec));
    return memory_bound(spec, gemv_of_product<T, Weight>(spec, product, std::move(elsewhere.kernel)));
  });
}

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N], pre [M, N]
Result<PreparedKernel> prepare_gemv(const KernelSpec& spec) {
  ProductStep product{};
  TSR_ASSIGN_OR_RETURN(product.activation, matmul_activation(spec.string("activation")));
  product.bias = spec.input_count() == 3 && spec.factor('k').begin[0] == 0 ? 2 : -1;
  product.has_pre = spec.output_count() == 2;
  return prepare_rows(spec, product, prepare_matmul);
}

// x [M, K], w [N, K], addend [M, N], bias [N] -> y [M, N]. When k is split, the shard at offset 0 alone adds
// addend and bias.
Result<PreparedKernel> prepare_gemv_add(const KernelSpec& spec) {
  ProductStep product{};
  const bool adds = spec.factor('k').begin[0] == 0;
  product.addend = adds ? 2 : -1;
  product.bias = adds && spec.input_count() == 4 ? 3 : -1;
  return prepare_rows(spec, product, prepare_matmul_add);
}

}  // namespace tessera::cuda
