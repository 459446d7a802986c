// Graph -> graph: gradients through gelu as part of the products that they are made of.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A differentiated graph in which every gelu_grad of the tanh form, of a product that nothing else reads, is
// one matmul_gelu_grad: the product is not held, nor rounded before it is multiplied. It pays where a library
// has that as the end of its product (cuBLASLt, f16 and bf16).
// Products that may multiply in TF32 stay as they are: they are of f32.
Result<Graph> with_gelu_gradients_in_products(const Graph& step);

}  // namespace tessera
