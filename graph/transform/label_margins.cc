#include "graph/transform/label_margins.h"

#include <algorithm>
#include <string>

#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

Status add_margins(Graph& graph, TensorId max, TensorId picked) {
  graph.set_scope("loss");
  TSR_ASSIGN_OR_RETURN(const TensorId margins, graph.add("sub", {max, picked}));
  graph.set_scope("");
  return graph.add_output(std::string(kLabelMargins), margins);
}

// The graph with the phases of linear_cross_entropy(x, w, labels, scale) in place of `fused`.
Result<Graph> with_phases(const Graph& evaluation, const Node& fused) {
  GraphCopy copy(evaluation);
  Graph& graph = copy.graph();
  TensorId max = kNoTensor, picked = kNoTensor;
  for (size_t t = 0; t < evaluation.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = evaluation.tensor(id);
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    } else if (id == fused.outputs[0]) {
      const TensorId x = copy.mapped(fused.inputs[0]), w = copy.mapped(fused.inputs[1]),
                     labels = copy.mapped(fused.inputs[2]), scale = copy.mapped(fused.inputs[3]);
      const int64_t allow_tf32 = attr_i64(fused.attrs, "allow_tf32");
      graph.set_scope(fused.scope);
      TSR_ASSIGN_OR_RETURN(max, graph.add("linear_row_max", {x, w}, {{"allow_tf32", allow_tf32}}));
      const TensorId operands[] = {x, w, labels, max};
      TSR_ASSIGN_OR_RETURN(const auto sums,
                           graph.add_node("linear_row_sums", operands, {{"allow_tf32", allow_tf32}}));
      picked = sums[1];
      TSR_ASSIGN_OR_RETURN(const TensorId loss, graph.add("linear_cross_entropy_finish",
                                                          {x, w, labels, max, sums[0], picked, scale}));
      graph.set_scope("");
      TSR_RETURN_IF_ERROR(copy.substitute(id, loss));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  TSR_RETURN_IF_ERROR(add_margins(graph, max, picked));
  return std::move(graph);
}

}  // namespace

Result<Graph> with_label_margins(const Graph& evaluation) {
  for (const Node& node : evaluation.nodes()) {
    if (node.op->name == "linear_cross_entropy") return with_phases(evaluation, node);
    if (node.op->name != "cross_entropy") continue;
    Graph graph = evaluation;
    TSR_RETURN_IF_ERROR(add_margins(graph, node.inputs[2], node.inputs[4]));
    return graph;
  }
  return Status(StatusCode::kInternal, "label margins: the evaluation has no token loss");
}

}  // namespace tessera
