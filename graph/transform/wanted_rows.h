// Requested rows: what of a language model is computed for requested tokens alone.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera {

// The number of operands that read each tensor.
std::vector<uint32_t> operand_uses(const Graph& graph);

// RequestedNodes: the last nodes of a language model, which compute the rows [B, T, ...] of a token from its own rows, and from
// keys and values of all tokens. Nothing that other tokens read depends on them: the logits of requested tokens need them for
// these tokens alone. Of the last layer with attention that leaves the projections of keys and values; of layers that use keys
// and values of earlier ones (Gemma 4 E) nothing.
class RequestedNodes {
 public:
  // `tokens`: the input [B, T]. `hidden`: another output, of all tokens; or kNoTensor.
  RequestedNodes(const Graph& graph, TensorId tokens, TensorId hidden);

  bool has(NodeId node) const { return requested_[index(node)]; }
  // Returns whether the producer is one of them.
  bool makes(TensorId tensor) const;
  // Returns whether such a node takes the rows of requested tokens alone of operand i, not all or none.
  bool reads_rows(NodeId node, size_t i) const;

 private:
  bool is_per_token(TensorId tensor) const;
  bool is_row_wise(const Node& node) const;
  bool has_selectable_operands(NodeId node) const;
  void find(TensorId hidden);

  const Graph& graph_;
  const Shape tokens_;
  std::vector<bool> row_wise_, requested_;  // by node
};

}  // namespace tessera
