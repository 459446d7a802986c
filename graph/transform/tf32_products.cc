#include "graph/transform/tf32_products.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/transform/graph_copy.h"

namespace tessera {

Result<Graph> with_tf32_products(const Graph& graph) {
  GraphCopy copy(graph);
  bool found = false;
  // Tensors come after those that they are computed from.
  for (size_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      continue;
    }
    if (tensor.output_index != 0) continue;
    const Node& node = graph.node(tensor.producer);
    std::vector<Attr> attrs = node.attrs;
    const auto allows = std::ranges::find(attrs, "allow_tf32", &Attr::name);
    if (allows != attrs.end() && graph.type(node.inputs[0]).dtype == DType::kF32) {
      allows->value = int64_t{1};
      found = true;
    }
    TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer, std::move(attrs)));
  }
  if (!found)
    return Status(StatusCode::kInvalidArgument,
                  "precision tf32: the graph has no matrix product of f32 operands; use another precision");
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
