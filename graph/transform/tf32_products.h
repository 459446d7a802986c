// Graph -> graph: matrix products of f32 that may multiply in TF32.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// The graph, in which every matrix product of f32 operands (matmul, expert_matmul, linear_cross_entropy, and
// their gradients where it has been differentiated) allows TF32: its kernels may round operands to 10 bits of
// mantissa, where tensor cores multiply them some ten times as fast, and sum in f32. Nothing is stored in
// another type, and what is no such product is computed in f32: attention, norms, losses, updates, products
// of weights that are stored narrow. Differentiated later, gradients allow what their products do.
// kInvalidArgument where the graph has no such product.
Result<Graph> with_tf32_products(const Graph& graph);

}  // namespace tessera
