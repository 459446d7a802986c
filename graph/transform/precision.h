// Graph -> graph: the element type in which a model is written, computed and trained.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A forward graph in which every f32 input, parameter, constant and state has element type `dtype`, and so
// does what is computed from them (casts to f32 become casts to `dtype`). In f64 a plan can be held against
// one device far below the rounding of training.
Result<Graph> with_float_type(const Graph& forward, DType dtype);

}  // namespace tessera
