#include "graph/transform/serving_rows.h"

#include <algorithm>
#include <set>
#include <string>

#include "graph/transform/serving.h"

namespace tessera {

bool carries_state(const Graph& forward) {
  return std::ranges::any_of(forward.nodes(), [](const Node& node) {
    return node.op->context.mixes_tokens && node.op->context.keys < 0;
  });
}

Result<Graph> make_row_copy(const Graph& serving) {
  Graph graph;
  const std::set<std::string> rows = row_states(serving);
  const TensorType number{DType::kI32, {graph.symbol("N")}};
  TSR_ASSIGN_OR_RETURN(const TensorId from, graph.add_tensor("from", number, TensorKind::kInput));
  TSR_ASSIGN_OR_RETURN(const TensorId to, graph.add_tensor("to", number, TensorKind::kInput));
  for (const TensorId id : serving.tensors_of_kind(TensorKind::kState)) {
    const Tensor& given = serving.tensor(id);
    if (!rows.contains(given.name)) continue;
    TSR_ASSIGN_OR_RETURN(const TensorId state, graph.add_tensor(given.name, given.type, TensorKind::kState));
    graph.set_scope(given.name.substr(0, given.name.rfind('.')));
    TSR_ASSIGN_OR_RETURN(const TensorId copied, graph.add("row_copy", {state, from, to}));
    graph.add_update(state, copied);
    graph.set_scope("");
  }
  return graph;
}

}  // namespace tessera
