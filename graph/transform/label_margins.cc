#include "graph/transform/label_margins.h"

#include <string>
#include <utility>
#include <vector>

#include "graph/phases.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

Status add_margins(Graph& graph, TensorId max, TensorId picked) {
  graph.set_scope("loss");
  TSR_ASSIGN_OR_RETURN(const TensorId margins, graph.add("sub", {max, picked}));
  graph.set_scope("");
  return graph.add_output(std::string(kLabelMargins), margins);
}

// The graph with its phases in place of `fused`, a loss with its head. The last phase computes the loss from its statistics.
Result<Graph> with_phases(const Graph& evaluation, const Node& fused) {
  GraphCopy copy(evaluation);
  Graph& graph = copy.graph();
  TSR_RETURN_IF_ERROR(copy.copy_range(TensorId{0}, fused.outputs[0]));
  std::vector<TensorId> inputs;
  for (const TensorId input : fused.inputs) inputs.push_back(copy.mapped(input));
  graph.set_scope(fused.scope);
  PhaseBuilder phases(graph, fused, std::move(inputs));
  TSR_RETURN_IF_ERROR(fused.op->phases(phases));
  graph.set_scope("");
  for (size_t i = 0; i < fused.outputs.size(); ++i)
    TSR_RETURN_IF_ERROR(copy.substitute(fused.outputs[i], phases.outputs()[i]));
  const Node finish = graph.nodes().back();
  TSR_RETURN_IF_ERROR(copy.copy_after(fused.outputs[0]));
  TSR_RETURN_IF_ERROR(add_margins(graph, finish.inputs[static_cast<size_t>(finish.op->loss.row_max)],
                                  finish.inputs[static_cast<size_t>(finish.op->loss.picked)]));
  return std::move(graph);
}

}  // namespace

Result<Graph> with_label_margins(const Graph& evaluation) {
  for (const Node& node : evaluation.nodes()) {
    const LossOperands& loss = node.op->loss;
    if (loss.head != LossHead::kNone && !loss.is_gradient) return with_phases(evaluation, node);
    if (loss.row_max < 0) continue;
    Graph graph = evaluation;
    TSR_RETURN_IF_ERROR(add_margins(graph, node.inputs[static_cast<size_t>(loss.row_max)],
                                    node.inputs[static_cast<size_t>(loss.picked)]));
    return graph;
  }
  return Status(StatusCode::kInternal, "label margins: the evaluation has no token loss");
}

}  // namespace tessera
