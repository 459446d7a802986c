#include "graph/transform/embedding.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/canonical_order.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/prune.h"
#include "graph/transform/scoring.h"

namespace tessera {
namespace {

constexpr std::string_view kHidden = "hidden";

Status unsuitable(std::string message) { return Status(StatusCode::kFailedPrecondition, std::move(message)); }

bool sees_both_directions(const Node& node) {
  return node.op->context.mixes_tokens && attr_i64_or(node.attrs, "causal", 1) == 0;
}

Status check_tokens(const Graph& graph) {
  const auto tokens = graph.find_tensor("tokens");
  if (tokens && graph.tensor(*tokens).kind == TensorKind::kInput && graph.type(*tokens).shape.rank() == 2)
    return {};
  return unsuitable("vectors of texts want a model with input \"tokens\" [B, T]");
}

// Returns the input of the product that computes the logits of a causal model; soft caps and factors may follow that product.
std::optional<TensorId> projected_tensor(const Graph& graph) {
  const auto logits = graph.find_output("logits");
  if (!logits) return {};
  TensorId at = *logits;
  for (;;) {
    const NodeId producer = graph.tensor(at).producer;
    if (producer == kNoNode) return {};
    const Node& node = graph.node(producer);
    at = node.inputs[0];
    if (node.op->weight.use == WeightUse::kProduct) return at;
    if (node.inputs.size() != 1) return {};
  }
}

Result<TensorId> find_result(const Graph& graph, std::string_view name) {
  if (const auto found = graph.find_output(name)) return *found;
  if (name == kHidden && !is_bidirectional(graph))
    if (const auto found = projected_tensor(graph)) return *found;
  std::vector<std::string> has;
  for (const NamedTensor& output : graph.outputs()) has.push_back(output.name);
  return unsuitable(format("the model has no output \"{}\" [B, T, C]; it has {}", name, join(has, ", ")));
}

}  // namespace

bool is_bidirectional(const Graph& graph) { return std::ranges::any_of(graph.nodes(), sees_both_directions); }

std::string_view class_output(const Graph& forward) {
  return forward.find_output("class_logits") ? "class_logits" : "logits";
}

Result<TensorId> find_hidden(const Graph& forward) { return find_result(forward, kHidden); }

Result<Graph> with_segments(const Graph& graph, SegmentUse use) {
  TSR_RETURN_IF_ERROR(check_tokens(graph));
  if (graph.find_tensor("segments")) return graph;
  GraphCopy copy(graph);
  TensorId segments = kNoTensor;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(static_cast<TensorId>(i)));
      if (tensor.name != "tokens") continue;
      TSR_ASSIGN_OR_RETURN(segments, copy.graph().add_tensor("segments", {DType::kI32, tensor.type.shape},
                                                             TensorKind::kInput));
      continue;
    }
    if (tensor.output_index != 0) continue;
    const Node& node = graph.node(tensor.producer);
    const bool is_kept_apart =
        use == SegmentUse::kDocuments ? node.op->context.mixes_tokens : sees_both_directions(node);
    const int at = first_segment(*node.op, node.attrs);
    if (is_kept_apart && at < 0)
      return Status(
          StatusCode::kUnsupported,
          format("{} '{}' mixes the tokens of a row, and cannot keep documents apart: use packing off",
                 node.op->name, node.scope));
    if (!is_kept_apart || node.inputs.size() != static_cast<size_t>(at)) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
      continue;
    }
    std::vector<TensorId> operands;
    for (const TensorId input : node.inputs) operands.push_back(copy.mapped(input));
    operands.insert(operands.end(), static_cast<size_t>(node.op->context.segment_count), segments);
    copy.graph().set_scope(node.scope);
    TSR_ASSIGN_OR_RETURN(
        const std::vector<TensorId> results,
        copy.graph().add_node(node.op->name, operands, {node.attrs.begin(), node.attrs.end()}));
    copy.graph().set_scope("");
    for (size_t k = 0; k < results.size(); ++k) copy.replace(node.outputs[k], results[k]);
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

Result<Graph> make_embedding(const Graph& forward, std::string_view output) {
  TSR_RETURN_IF_ERROR(check_tokens(forward));
  TSR_ASSIGN_OR_RETURN(const TensorId result, find_result(forward, output));
  if (forward.type(result).shape.rank() != 3)
    return unsuitable(
        format("the model's output \"{}\" is [{}], wanted [B, T, C]", output, forward.type(result).shape));
  Graph marked = forward;
  marked.clear_outputs();
  TSR_RETURN_IF_ERROR(marked.add_output(std::string(output), result));
  TSR_ASSIGN_OR_RETURN(Graph graph, with_unbounded_routing(marked));
  if (is_bidirectional(graph)) {
    TSR_ASSIGN_OR_RETURN(graph, with_segments(graph));
  }
  if (const TensorId value = *graph.find_output(output); graph.type(value).dtype != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(const TensorId wide, graph.add("cast", {value}, {{"dtype", to_text(DType::kF32)}}));
    graph.clear_outputs();
    TSR_RETURN_IF_ERROR(graph.add_output(std::string(output), wide));
  }
  TSR_ASSIGN_OR_RETURN(const Graph ordered, in_canonical_order(graph));
  TSR_ASSIGN_OR_RETURN(const Graph sure, without_dropout(ordered));
  return prune(sure);
}

}  // namespace tessera
