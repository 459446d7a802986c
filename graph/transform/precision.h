// Graph -> graph: the element type in which a model is written, computed and trained.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A forward graph in which every f32 input, parameter, constant and state has element type `dtype`, and so
// has everything computed from them (casts to f32 become casts to `dtype`). In f64 a plan can be compared
// with one device far below the rounding of training.
Result<Graph> with_float_type(const Graph& forward, DType dtype);

// Mixed precision: parameters stay f32 and are cast to `compute` (bf16 or f16) where they are first used;
// activations follow. Statistics, losses and the gradients of parameters are f32, as ops and casts give them.
// Where an op refuses a mixture of the two, constants and inputs are cast to `compute`, or else all to f32.
Result<Graph> with_mixed_precision(const Graph& forward, DType compute);

}  // namespace tessera
