// Two products of one left operand, of one shape, that follow one another: one launch of both, where either
// by itself leaves much of the device idle in its last wave of tiles. Gate and up of a Llama, and its keys
// and values, over the tokens of a prompt.
#pragma once

#include <memory>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/lt_product.h"

namespace tessera::cuda {

// A product and nothing else, C = A B. `may_pair`: whether the algorithm of both together may be the
// heuristic's choice, since nobody named one.
std::unique_ptr<Kernel> make_product_kernel(const LtShape& shape, std::shared_ptr<const LtProduct> product,
                                            bool may_pair);

}  // namespace tessera::cuda
