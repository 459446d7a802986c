// Fusion of two consecutive matmuls of one left operand and one shape into one batched launch, where either
// alone leaves much of the device idle in its last wave of tiles. Gate and up of a Llama, and its keys and
// values, over the tokens of a prompt.
#pragma once

#include <memory>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/lt_product.h"

namespace tessera::cuda {

// A kernel of one plain matmul, C = A B. `may_pair`: whether the heuristic may choose the algorithm of a
// fused pair, since no variant named one.
std::unique_ptr<Kernel> make_product_kernel(const LtShape& shape, std::shared_ptr<const LtProduct> product,
                                            bool may_pair);

}  // namespace tessera::cuda
