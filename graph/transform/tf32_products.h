// Graph -> graph: f32 matmuls that may multiply in TF32.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// The graph, in which every matmul of f32 operands (matmul, expert_matmul, linear_cross_entropy, and their
// gradients where it has been differentiated) allows TF32: its kernels may round operands to 10 bits of
// mantissa, where tensor cores multiply them some ten times as fast, and sum in f32. No tensor is stored in
// another type, and everything else is computed in f32: attention, norms, losses, updates, matmuls of weights
// that are stored narrow. Gradients of a later differentiation allow it too. kInvalidArgument where the graph
// has no such matmul.
Result<Graph> with_tf32_products(const Graph& graph);

}  // namespace tessera
