// Kernels that are one cuBLASLt matmul and a few steps after it.
#pragma once

#include <memory>
#include <utility>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"

namespace tessera::cuda {

// Whether matmuls of the kernel's first two operands may multiply in TF32.
inline bool allows_tf32(const KernelSpec& spec) {
  return spec.input_dtype(0) == DType::kF32 && spec.i64("allow_tf32") == 1;
}

// Share of the rate of dense bf16 matmuls, which device_info states, that large matmuls reach. Tensor cores
// multiply TF32 at half of that, from Ampere to Blackwell; f32 and f64 run elsewhere.
inline double lt_efficiency(const LtShape& shape) {
  if (shape.dtype == DType::kF64) return 0.05;
  return shape.dtype != DType::kF32 ? 0.7 : shape.tf32 ? 0.35 : 0.05;
}

inline PreparedKernel lt_prepared(const KernelSpec& spec, std::unique_ptr<Kernel> kernel,
                                  const LtShape& shape, std::shared_ptr<const CublasLtMatmul> product) {
  PreparedKernel prepared = memory_bound(spec, std::move(kernel));
  prepared.products.push_back(std::move(product));
  prepared.workspace_bytes = CublasLtMatmul::workspace_bytes(shape);
  prepared.flops = 2.0 * double(shape.batches) * double(shape.M) * double(shape.N) * double(shape.K);
  prepared.efficiency = lt_efficiency(shape);
  return prepared;
}

// Fusion of two consecutive matmuls of one left operand and one shape into one batched launch, where either
// alone leaves much of the device idle in its last wave of tiles. Gate and up of a Llama, and its keys and
// values, over the tokens of a prompt.

// A kernel of one plain matmul, C = A B. `may_pair`: whether the heuristic may choose the algorithm of a
// fused pair, since no variant named one.
std::unique_ptr<Kernel> make_product_kernel(const LtShape& shape,
                                            std::shared_ptr<const CublasLtMatmul> product, bool may_pair);

}  // namespace tessera::cuda
