#include "graph/transform/prune.h"

#include <algorithm>
#include <vector>

#include "graph/transform/graph_copy.h"

namespace tessera {

Result<Graph> prune(const Graph& graph) {
  std::vector<bool> read(graph.tensors().size());
  for (const NamedTensor& output : graph.outputs()) read[index(output.tensor)] = true;
  for (const Update& update : graph.updates()) read[index(update.value)] = true;
  for (const Gradient& gradient : graph.gradients()) read[index(gradient.gradient)] = true;
  std::vector<bool> live(graph.nodes().size());
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    live[i] = std::ranges::any_of(node.outputs, [&](TensorId output) { return read[index(output)]; });
    if (live[i])
      for (TensorId input : node.inputs) read[index(input)] = true;
  }

  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(TensorId(static_cast<uint32_t>(i))));
    } else if (tensor.output_index == 0 && live[index(tensor.producer)]) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

Result<Graph> without_dropout(const Graph& graph, int64_t first_salt) {
  const auto goes = [&](const Node& node) {
    return node.op->is_noise && attr_i64(node.attrs, "salt") >= first_salt;
  };
  std::vector<bool> seed_only(graph.tensors().size());
  for (const Node& node : graph.nodes())
    if (goes(node)) seed_only[index(node.inputs[1])] = true;
  for (const Node& node : graph.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!goes(node) || i != 1) seed_only[index(node.inputs[i])] = false;
  for (const NamedTensor& output : graph.outputs()) seed_only[index(output.tensor)] = false;

  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer == kNoNode) {
      if (tensor.kind != TensorKind::kInput || !seed_only[i]) TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (goes(graph.node(tensor.producer))) {
      copy.replace(id, copy.mapped(graph.node(tensor.producer).inputs[0]));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
