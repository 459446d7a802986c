// ServingBuilder: an op's view in its `serve`: the node of a model, and functions that emit
// its nodes in a step of the serving engine (graph/transform/serving.h). The tokens of a step,
// [B, N], belong to many sequences; rows of earlier tokens are in pages, and what a recurrent op keeps of them in a row of
// its own for each sequence. Both are state.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tessera {

class ServingBuilder {
 public:
  std::span<const Attr> attrs() const;
  TensorId input(int i) const;  // in the step
  const TensorType& input_type(int i) const;  // in the model
  // Returns whether the model reads result i.
  bool is_read(int i) const;

  Result<std::vector<TensorId>> emit(std::string_view op, const std::vector<TensorId>& inputs,
                                     std::vector<Attr> attrs = {});
  // Sets the replacement of result i.
  void set_output(int i, TensorId output);
  // Emits the op itself, applied to each token alone.
  Status copy();

  // Adds state "<scope>.<which>", pages for the `rows` [B, T, KV, D] of all tokens, and writes the rows of the
  // step; for rows that have pages, returns those. `window` as in attention: pages of a window hold no more than it. `what` names the rows in messages.
  Result<TensorId> add_pages(std::string_view which, TensorId rows, int64_t window, std::string_view what);
  // The operands that locate a token's pages: [rows, columns], and the row and position of each token of input(0).
  TensorId page_table(int64_t window) const;
  TensorId row() const;
  TensorId position() const;

  // Adds state "<scope>.<which>" [R, ...], a row of type `row` for each sequence.
  Result<TensorId> add_row_state(std::string_view which, const TensorType& row);
  // Sets the state's value after the step.
  void set_row_state(TensorId state, TensorId value);

  // Selects a row of operand i [2, ...] -> [1, ...]: row 0 for sequences of up to `threshold` tokens, row 1 for longer ones.
  Result<TensorId> select_by_length(int i, int64_t threshold);

 private:
  friend class ServingGraph;
  ServingBuilder(class ServingGraph& owner, NodeId node) : owner_(owner), node_(node) {}
  class ServingGraph& owner_;
  NodeId node_;
};

}  // namespace tessera
