// Reverse-mode differentiation, graph to graph: differentiate the global graph, then shard.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace tessera {

// VjpBuilder: the interface that an op's `vjp` function is given: the node, the gradients
// of its outputs, and functions that emit nodes. Nodes of an activation's gradient have phase
// backward_input; nodes of a parameter's gradient alone have backward_weight. The
// builder derives the phase from the input passed to `set_input_grad`; vjp code need
// not set it.
class VjpBuilder {
 public:
  const Node& node() const;
  TensorId input(int i) const;
  TensorId output(int i) const;
  const TensorType& input_type(int i) const;
  const TensorType& output_type(int i) const;
  std::span<const Attr> attrs() const;
  int input_count() const;

  // Gradient of output i; nullopt when nothing downstream depends on it.
  std::optional<TensorId> output_grad(int i) const;
  // Whether input i depends on a differentiated tensor; skip work for the others.
  bool needs_grad(int i) const;

  Result<TensorId> emit(std::string_view op, std::initializer_list<TensorId> inputs, std::vector<Attr> attrs = {});
  Result<std::vector<TensorId>> emit_all(std::string_view op, std::span<const TensorId> inputs,
                                         std::vector<Attr> attrs = {});
  // Adds `grad` (same shape as input i) to the gradient of input i.
  Status set_input_grad(int i, TensorId grad);

 private:
  friend class Differentiator;
  explicit VjpBuilder(class Differentiator& owner, NodeId node) : owner_(owner), node_(node) {}
  class Differentiator& owner_;
  NodeId node_;
};

// Appends to `graph` the gradients of the scalar `loss` with respect to every trainable parameter that it
// depends on and records them with Graph::add_gradient, in parameter order. Contributions to one gradient are
// summed by `add` nodes in reverse order of use. A parameter that the loss does not depend on has no entry.
Status differentiate(Graph& graph, TensorId loss);

}  // namespace tessera
