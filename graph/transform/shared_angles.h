// Graph -> graph: rope's angles, once for all tensors that are rotated by the same positions.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A graph that is not differentiated, in which ropes of the same positions, base and head size (a decoding step has two a layer) read one
// rope_angles, and so do those that read equal ones. Results have the same bits. A rope that shares its angles with no other stays as it is.
Result<Graph> with_shared_angles(const Graph& graph);

}  // namespace tessera
