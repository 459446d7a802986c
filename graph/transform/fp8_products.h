// Graph -> graph: linear layers in numbers of 8 bits.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A graph, differentiated or not, in which the products of blocks with weights, forward and both backward,
// multiply numbers of 8 bits: activations and weights e4m3, gradients e5m2, with one scale for each whole
// tensor (micro-batch of an activation), made of that very tensor. Weights are quantized from their
// parameters, each once for both passes; gradients of weights leave their product in f32. Everything else
// stays in the element type that it has: f32 or f64, or bf16 or f16 in mixed precision.
//
// Taken are products in nodes whose scope is numbered ("block.3.ffn"), of weights that are parameters (or
// casts of them) with extents that are multiples of 16, as tensor cores read them. Not taken are adapters,
// whose products are small, and what a softmax reads (routers). kInvalidArgument where that leaves none.
Result<Graph> with_fp8_products(const Graph& graph);

}  // namespace tessera
