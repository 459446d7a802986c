#include "graph/transform/scoring.h"

#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/canonical_order.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/language_model.h"
#include "graph/transform/prune.h"
#include "graph/transform/token_loss.h"

namespace tessera {
namespace {

Status unsuitable(std::string_view wanted) {
  return Status(StatusCode::kFailedPrecondition, format("scoring wants {}", wanted));
}

Status check_model(const Graph& forward) {
  const auto logits = forward.find_output("logits");
  if (!logits || forward.type(*logits).shape.rank() != 3)
    return unsuitable(format("a model with output \"logits\" [B, T, V]{}", missing_logits(forward)));
  const auto tokens = forward.find_tensor("tokens");
  if (!tokens || forward.tensor(*tokens).kind != TensorKind::kInput ||
      forward.type(*tokens).shape.rank() != 2)
    return unsuitable("a model with input \"tokens\" [B, T]");
  for (const Node& node : forward.nodes())
    if (node.op->context.mixes_tokens && attr_i64_or(node.attrs, "causal", 1) != 1)
      return unsuitable(
          format("causal attention: '{}' sees the tokens that are to be predicted", node.scope));
  return {};
}

}  // namespace

// The number of slots depends on T, so a token dropped in a short window may be kept in a longer one.
Result<Graph> with_unbounded_routing(const Graph& graph) {
  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(static_cast<TensorId>(i)));
    } else if (tensor.output_index == 0) {
      const Node& node = graph.node(tensor.producer);
      std::vector<Attr> attrs = node.attrs;
      if (node.op->routing_scores >= 0)
        for (Attr& attr : attrs)
          if (attr.name == "capacity") attr.value = 0.0;
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer, std::move(attrs)));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

Result<Graph> make_scoring(const Graph& forward) {
  TSR_RETURN_IF_ERROR(check_model(forward));
  TSR_ASSIGN_OR_RETURN(Graph graph, with_unbounded_routing(forward));
  const TensorId logits = *graph.find_output("logits");
  const Shape& shape = graph.type(logits).shape;
  TSR_ASSIGN_OR_RETURN(const TensorId labels,
                       graph.add_tensor("labels", {DType::kI32, {shape[0], shape[1]}}, TensorKind::kInput));
  graph.set_scope("score");
  TSR_ASSIGN_OR_RETURN(const CrossEntropy entropy, add_cross_entropy(graph, logits, labels));
  TensorId nll = entropy.losses;
  TSR_ASSIGN_OR_RETURN(TensorId margin, graph.add("sub", {entropy.picked, entropy.max}));
  graph.clear_outputs();
  for (const auto& [name, result] : {std::pair{"nll", &nll}, std::pair{"margin", &margin}}) {
    if (graph.type(*result).dtype != DType::kF32) {  // of an f64 graph
      TSR_ASSIGN_OR_RETURN(*result, graph.add("cast", {*result}, {{"dtype", to_text(DType::kF32)}}));
    }
    TSR_RETURN_IF_ERROR(graph.add_output(name, *result));
  }
  graph.set_scope("");
  TSR_ASSIGN_OR_RETURN(const Graph ordered, in_canonical_order(graph));
  TSR_ASSIGN_OR_RETURN(const Graph sure, without_dropout(ordered));
  return prune(sure);
}

}  // namespace tessera
