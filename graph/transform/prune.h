// Graph -> graph: removal of unread nodes, and of dropout, which is for training only.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Drops every node that no output, update or gradient depends on. Inputs, parameters, constants and state
// stay, used or not: callers know them by name.
Result<Graph> prune(const Graph& graph);

// The graph with every dropout whose salt is at least `first_salt` replaced
// by its operand. Inputs of these alone (their seed) are removed too.
Result<Graph> without_dropout(const Graph& graph, int64_t first_salt = INT64_MIN);

}  // namespace tessera
