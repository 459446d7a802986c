// Graph -> graph: parameters that are trained in bf16 without a wider copy.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/host_tensor.h"

namespace tessera {

// A training step, or an evaluation, in which every trained f32 parameter is bf16, at two bytes each on every
// device. A node that read its cast to bf16 (mixed precision) reads the parameter itself; any other reads a
// cast to f32, one a reader. Gradients, their sums and optimizer state stay f32. Updates round by random bits
// (graph/ops/optimizer_updates.cc), drawn from the input "seed" i64[] (added where the graph has none), the
// parameter's name and the place of the element in it. Frozen parameters stay as they are. kUnsupported: an
// update that has no such form.
Result<Graph> with_bf16_parameters(const Graph& graph);

// The value of such a parameter in f32: the same number.
HostTensor widened_to_f32(const HostTensor& bf16);

}  // namespace tessera
