// Graph -> graph: the same nodes in an order that follows from their structure alone.
// Neither names nor the order of a model's source then affect its plan, placement and sums.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// The order is depth first from the results: a node comes after its operands. Operands behind fewer layers
// come first (a layer is a node that joins a parameter with something else), else the one passed first.
// Parameters, and nodes computed from them alone, come right before their first reader. Models written from
// inputs to results, layer by layer, so keep their order or nearly. Inputs come first, in the order of
// their first use. Nodes that no output, update or gradient depends on come last in their given order, and
// so do unread tensors.
//
// Names, scopes, outputs, updates and gradients stay; ids change, and with them the names "%<n>". A graph
// with nodes of another phase than forward is returned unchanged: its order is that of its differentiation.
Result<Graph> in_canonical_order(const Graph& graph);

}  // namespace tessera
