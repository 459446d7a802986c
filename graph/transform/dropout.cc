#include "graph/transform/dropout.h"

#include <vector>

#include "graph/transform/graph_copy.h"

namespace tessera {

Result<Graph> without_dropout(const Graph& graph) {
  const auto is_dropout = [&](NodeId node) { return graph.node(node).op->name == "dropout"; };
  std::vector<bool> seed_only(graph.tensors().size());
  for (const Node& node : graph.nodes())
    if (node.op->name == "dropout") seed_only[index(node.inputs[1])] = true;
  for (const Node& node : graph.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.op->name != "dropout" || i != 1) seed_only[index(node.inputs[i])] = false;
  for (const NamedTensor& output : graph.outputs()) seed_only[index(output.tensor)] = false;

  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer == kNoNode) {
      if (tensor.kind != TensorKind::kInput || !seed_only[i]) TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (is_dropout(tensor.producer)) {
      copy.replace(id, copy.mapped(graph.node(tensor.producer).inputs[0]));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
