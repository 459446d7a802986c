// Graph -> graph: removal of unread nodes.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Drops every node that no output, update or gradient depends on. Inputs, parameters, constants and state
// stay, used or not: callers know them by name.
Result<Graph> prune(const Graph& graph);

}  // namespace tessera
