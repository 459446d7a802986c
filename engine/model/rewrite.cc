#include "engine/model/rewrite.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/base/wildcard.h"
#include "graph/transform/graph_copy.h"

namespace tessera {
namespace {

// Copies a dropout node with another probability.
Status copy_dropout(GraphCopy& copy, NodeId id, double p) {
  const Node& node = copy.source().node(id);
  std::vector<TensorId> inputs;
  for (const TensorId input : node.inputs) inputs.push_back(copy.mapped(input));
  std::vector<Attr> attrs = node.attrs;
  for (Attr& attr : attrs)
    if (attr.name == "p") attr.value = p;
  copy.graph().set_scope(node.scope);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                       copy.graph().add_node(node.op->name, inputs, std::move(attrs)));
  copy.graph().set_scope("");
  copy.replace(node.outputs[0], outputs[0]);
  const std::string& name = copy.source().tensor(node.outputs[0]).name;
  return name.starts_with('%') ? Status() : copy.graph().rename(outputs[0], name);
}

}  // namespace

bool has_dropout(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& node) { return node.op->is_noise; });
}

Result<Graph> with_dropout(const Graph& graph, double p) {
  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(static_cast<TensorId>(i)));
    } else if (graph.node(tensor.producer).op->is_noise) {
      TSR_RETURN_IF_ERROR(copy_dropout(copy, tensor.producer, p));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

Result<std::vector<TensorId>> matching_parameters(const Graph& graph, std::string_view patterns,
                                                  std::span<const TensorId> of, std::string_view purpose) {
  std::vector<TensorId> all;
  std::vector<bool> taken(graph.tensors().size(), false);
  for (const std::string& part : split(patterns, ',')) {
    const std::string_view pattern = trim(part);
    bool found = false;
    for (const TensorId id : of) {
      if (!matches_wildcard(pattern, graph.tensor(id).name)) continue;
      if (!taken[static_cast<size_t>(id)]) all.push_back(id);
      taken[static_cast<size_t>(id)] = found = true;
    }
    if (!found) {
      std::vector<std::string> names;
      for (const TensorId id : of) names.push_back(graph.tensor(id).name);
      return Status(StatusCode::kNotFound, format("{}: no parameter matches '{}'{}", purpose,
                                                  pattern, nearest_hint(pattern, names)));
    }
  }
  return all;
}

Status freeze(Graph& graph, std::string_view patterns) {
  if (trim(patterns).empty()) return {};
  const std::vector<TensorId> parameters = graph.tensors_of_kind(TensorKind::kParameter);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> frozen,
                       matching_parameters(graph, patterns, parameters, "frozen"));
  for (const TensorId id : frozen) graph.set_trainable(id, false);
  return {};
}

Status train_only(Graph& graph, std::string_view patterns) {
  if (trim(patterns).empty()) return {};
  std::vector<TensorId> training;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    if (graph.tensor(id).trainable) training.push_back(id);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> chosen,
                       matching_parameters(graph, patterns, training, "trained"));
  for (const TensorId id : training) graph.set_trainable(id, false);
  for (const TensorId id : chosen) graph.set_trainable(id, true);
  return {};
}

}  // namespace tessera
