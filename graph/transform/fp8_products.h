// Graph -> graph: linear layers in 8-bit floats.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A graph, differentiated or not, in which the matmuls of blocks with weights, forward and both backward,
// multiply 8-bit floats: activations and weights e4m3, gradients e5m2, with one scale for each whole tensor
// (micro-batch of an activation), computed from that tensor. Weights are quantized from their parameters,
// once for both passes; gradients of weights are f32. Everything else keeps its element type: f32 or f64, or
// bf16 or f16 in mixed precision.
//
// Converted are matmuls in nodes whose scope is numbered ("block.3.ffn"), of weights that are parameters (or
// casts of them) with extents that are multiples of 16, as tensor cores read them. Not converted are
// adapters, whose matmuls are small, and the inputs of a softmax (routers). kInvalidArgument where that
// leaves none.
Result<Graph> with_fp8_products(const Graph& graph);

}  // namespace tessera
