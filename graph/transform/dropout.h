// Graph -> graph: removal of dropout, which is for training only.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// The graph with every dropout replaced by its operand. Inputs that only dropouts read (their seed) go too.
Result<Graph> without_dropout(const Graph& graph);

}  // namespace tessera
