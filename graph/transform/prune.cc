#include "graph/transform/prune.h"

#include <algorithm>

namespace tessera {

namespace {

bool is_noise(const Node& node, int64_t first_salt) {
  return node.op->is_noise && attr_i64(node.attrs, "salt") >= first_salt;
}

}  // namespace

std::vector<bool> needed_by(const Graph& graph, std::span<const TensorId> results) {
  std::vector<bool> needed(graph.tensors().size());
  for (const TensorId result : results) needed[index(result)] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (!std::ranges::any_of(node.outputs, [&](TensorId output) { return needed[index(output)]; })) continue;
    for (const TensorId output : node.outputs) needed[index(output)] = true;
    for (const TensorId input : node.inputs) needed[index(input)] = true;
  }
  return needed;
}

Status copy_chosen(GraphCopy& copy, const std::vector<bool>& chosen) {
  for (size_t i = 0; i < chosen.size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = copy.source().tensor(id);
    if (!chosen[i]) continue;
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  return {};
}

Result<Graph> prune(const Graph& graph) {
  std::vector<TensorId> results;
  for (const NamedTensor& output : graph.outputs()) results.push_back(output.tensor);
  for (const Update& update : graph.updates()) results.push_back(update.value);
  for (const Gradient& gradient : graph.gradients()) results.push_back(gradient.gradient);
  std::vector<bool> chosen = needed_by(graph, results);
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = chosen[i] || graph.tensors()[i].producer == kNoNode;
  GraphCopy copy(graph);
  TSR_RETURN_IF_ERROR(copy_chosen(copy, chosen));
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

std::vector<bool> read_by_noise_alone(const Graph& graph, int64_t first_salt) {
  std::vector<bool> found(graph.tensors().size());
  for (const Node& node : graph.nodes())
    for (size_t i = 1; is_noise(node, first_salt) && i < node.inputs.size(); ++i) found[index(node.inputs[i])] = true;
  for (const Node& node : graph.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (i == 0 || !is_noise(node, first_salt)) found[index(node.inputs[i])] = false;
  for (const NamedTensor& output : graph.outputs()) found[index(output.tensor)] = false;
  return found;
}

Result<Graph> without_dropout(const Graph& graph, int64_t first_salt) {
  const std::vector<bool> of_noise = read_by_noise_alone(graph, first_salt);
  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer == kNoNode) {
      if (tensor.kind != TensorKind::kInput || !of_noise[i]) TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (is_noise(graph.node(tensor.producer), first_salt)) {
      copy.replace(id, copy.mapped(graph.node(tensor.producer).inputs[0]));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
