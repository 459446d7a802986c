// Graph -> graph: copies of rows of state, of a graph of make_serving: what recurrent layers carry from token to token, a row for
// each sequence and for each snapshot.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Returns whether layers of a model carry state from token to token.
bool carries_state(const Graph& forward);
// Inputs "from" and "to" i32[N]: each such state has row to[n] as a copy of row from[n]; -1: none. State: that of `serving`.
// Symbol left: N.
Result<Graph> make_row_copy(const Graph& serving);

}  // namespace tessera
