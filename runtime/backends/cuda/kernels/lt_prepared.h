// A kernel that is one product of cuBLASLt and what little follows it.
#pragma once

#include <memory>
#include <utility>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/lt_product.h"

namespace tessera::cuda {

inline Prepared lt_prepared(const KernelSpec& spec, std::unique_ptr<Kernel> kernel, const LtShape& shape,
                            std::shared_ptr<const LtProduct> product) {
  Prepared prepared = memory_bound(spec, std::move(kernel));
  prepared.products.push_back(std::move(product));
  prepared.workspace_bytes = LtProduct::workspace_bytes(shape);
  prepared.flops = 2.0 * double(shape.batches) * double(shape.M) * double(shape.N) * double(shape.K);
  // Of the rate of dense bf16 products, which device_info states.
  prepared.efficiency = shape.dtype == DType::kF32 || shape.dtype == DType::kF64 ? 0.05 : 0.7;
  return prepared;
}

}  // namespace tessera::cuda
