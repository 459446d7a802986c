// Graph -> graph: gelu's gradient fused into the matmul before it.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A differentiated graph in which every gelu_grad of the tanh form, of a matmul that nothing else reads, is
// one matmul_gelu_grad: the matmul's result is not stored, nor rounded before it is multiplied. It pays where
// a library has that epilogue (cuBLASLt, f16 and bf16). Matmuls that may multiply in TF32, which are f32,
// stay as they are.
Result<Graph> with_gelu_gradients_in_products(const Graph& step);

}  // namespace tessera
