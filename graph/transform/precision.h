// Graph -> graph: the element types of a model's storage,
// computation and training, and its matmuls in 8-bit floats or TF32.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/host_tensor.h"

namespace tessera {

// Mixed precision: parameters stay f32 and are cast to `compute` (bf16 or f16) at their first use; activations
// follow. Statistics, losses and the gradients of parameters are f32, by the rules of ops and casts. Where an
// op refuses a mixture of the two, constants and inputs are cast to `compute`, or else all to f32.
Result<Graph> with_mixed_precision(const Graph& forward, DType compute);

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
Result<Graph> with_fp8_matmuls(const Graph& graph);

// The graph, in which every matmul of f32 operands (matmul, expert_matmul, linear_cross_entropy,
// linear_token_losses, orthogonalize, and their gradients where it has been differentiated) allows TF32: its kernels may round operands to 10 bits of
// mantissa, where tensor cores multiply them some ten times as fast, and sum in f32. No tensor is stored in
// another type, and everything else is computed in f32: attention, norms, losses, updates, matmuls of weights
// that are stored narrow. Gradients of a later differentiation allow it too. kInvalidArgument where the graph
// has no such matmul.
Result<Graph> with_tf32_matmuls(const Graph& graph);

// A training step, or an evaluation, in which every trained f32 parameter is bf16, at two bytes
// each on every device. A node that read its cast to bf16 (mixed precision) reads the parameter
// itself; any other reads a cast to f32, one a reader. Gradients, their sums and optimizer state
// stay f32. Updates round by random bits (graph/ops/optimizer_updates.cc), drawn from the input
// "seed" i64[] (added where the graph has none), the parameter's name and the position of the
// element in it. Frozen parameters stay as they are. kUnsupported: an update without such a form.
Result<Graph> with_bf16_parameters(const Graph& graph);

// The value of such a parameter in f32: the same number.
HostTensor widened_to_f32(const HostTensor& bf16);

}  // namespace tessera
