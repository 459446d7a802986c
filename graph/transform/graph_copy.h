// GraphCopy: a modified copy of a graph under construction, node by node. It keeps
// the map from old to new ids, so that a transformation states only its changes.
#pragma once

#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

class GraphCopy {
 public:
  explicit GraphCopy(const Graph& source);

  Graph& graph() { return graph_; }
  const Graph& source() const { return source_; }

  // Copies an input, parameter, constant or state.
  Status copy_tensor(TensorId old);
  // Copies a node with scope, phase, forward node and the names of its results; its operands are already
  // mapped.
  Status copy_node(NodeId old) { return copy_node(old, source_.node(old).attrs); }
  // The same with other attributes.
  Status copy_node(NodeId old, std::vector<Attr> attrs);
  // Replaces `old` by `now` from here on.
  void replace(TensorId old, TensorId now) { tensors_[index(old)] = now; }
  // The same, and `now` takes the name of `old`, unless that was generated.
  Status substitute(TensorId old, TensorId now);
  // Makes `now` the forward node of nodes copied later whose forward node is `old`.
  void replace_node(NodeId old, NodeId now) { nodes_[index(old)] = now; }
  NodeId mapped_node(NodeId old) const { return nodes_[index(old)]; }
  // The new id of a tensor; kNoTensor when it was not copied.
  TensorId mapped(TensorId old) const { return tensors_[index(old)]; }

  // Copies the tensors [begin, end), and their producers, in their order. Sources that are mapped already stay.
  Status copy_range(TensorId begin, TensorId end);
  // Copies all tensors after `last`, and the results.
  Status copy_after(TensorId last);
  // Copies outputs, updates and gradients whose tensors are all mapped.
  Status copy_results();

 private:
  const Graph& source_;
  Graph graph_;
  std::vector<TensorId> tensors_;
  std::vector<NodeId> nodes_;
};

}  // namespace tessera
