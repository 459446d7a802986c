// Graph -> graph: without the nodes whose results nobody reads.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Drops every node from which no output, update or gradient can be reached. Inputs, parameters, constants and
// state stay, used or not: they are what the outside knows by name.
Result<Graph> prune(const Graph& graph);

}  // namespace tessera
