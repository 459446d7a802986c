#include "graph/transform/input_squares.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/base/text.h"
#include "graph/transform/canonical_order.h"
#include "graph/transform/prune.h"
#include "graph/transform/scoring.h"

namespace tessera {
namespace {

// Returns whether the node multiplies activations [B, T, K] by a parameter [N, K].
bool is_product(const Graph& graph, const Node& node, const Shape& tokens) {
  if (node.op->weight.use != WeightUse::kProduct || attr_i64(node.attrs, "trans_w") != 1) return false;
  const Tensor& weight = graph.tensor(node.inputs[static_cast<size_t>(node.op->weight.operand)]);
  const Shape& x = graph.type(node.inputs[0]).shape;
  return weight.kind == TensorKind::kParameter && weight.type.dtype == DType::kF32 &&
         weight.type.shape.rank() == 2 && x.rank() == 3 && x[0] == tokens[0] && x[1] == tokens[1];
}

}  // namespace

Result<InputSquares> make_input_squares(const Graph& forward) {
  const auto tokens = forward.find_tensor("tokens");
  if (!tokens || forward.tensor(*tokens).kind != TensorKind::kInput ||
      forward.type(*tokens).shape.rank() != 2)
    return Status(StatusCode::kFailedPrecondition,
                  "an importance matrix wants a model with input \"tokens\" [B, T]");
  TSR_ASSIGN_OR_RETURN(Graph graph, with_unbounded_routing(forward));
  const Shape shape = graph.type(*graph.find_tensor("tokens")).shape;
  std::map<TensorId, std::vector<std::string>> weights;  // by input
  for (const Node& node : graph.nodes())
    if (is_product(graph, node, shape)) weights[node.inputs[0]].push_back(graph.tensor(node.inputs[1]).name);
  if (weights.empty())
    return Status(
        StatusCode::kFailedPrecondition,
        "an importance matrix wants a model with weights [N, K] that multiply activations [B, T, K]");
  InputSquares result;
  graph.clear_outputs();
  graph.set_scope("importance");
  for (auto& [x, names] : weights) {
    TSR_ASSIGN_OR_RETURN(TensorId sum, graph.add("square", {x}));
    TSR_ASSIGN_OR_RETURN(sum, graph.add("reduce_sum", {sum}, {{"axes", std::vector<int64_t>{1}}}));
    std::string name = "in_sum2." + names.front();
    TSR_RETURN_IF_ERROR(graph.add_output(name, sum));
    result.outputs.push_back({std::move(name), std::move(names)});
  }
  graph.set_scope("");
  TSR_ASSIGN_OR_RETURN(const Graph ordered, in_canonical_order(graph));
  TSR_ASSIGN_OR_RETURN(const Graph sure, without_dropout(ordered));
  TSR_ASSIGN_OR_RETURN(result.graph, prune(sure));
  return result;
}

}  // namespace tessera
