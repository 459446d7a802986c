// Graph -> graph: the same nodes in an order that follows from their structure alone, so that neither names
// nor the order in which somebody happened to write a model down decide how it is planned, placed and summed.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Depth first from the results: a node comes after its operands, of which those behind fewer layers come
// first (a layer is a node that joins a parameter with something else), else the one passed first; what is
// made of parameters alone, and the parameters themselves, come right before their first reader. Models
// written down from their inputs to their results, layer by layer, so keep their order or nearly. Inputs come
// first, in the order of their first use; nodes that no output, update or gradient is reached from come last
// in the order given, and so do tensors that nobody reads.
//
// Names, scopes, outputs, updates and gradients stay what they are; ids do not, nor the names "%<n>" that
// follow from them. A graph that holds nodes of another phase than forward comes back as it is: their order
// is that of whoever differentiated it.
Result<Graph> in_canonical_order(const Graph& graph);

}  // namespace tessera
