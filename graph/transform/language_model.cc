#include "graph/transform/language_model.h"

#include <string>
#include <utility>

#include "graph/analysis/index_inputs.h"
#include "graph/base/text.h"
#include "graph/transform/canonical_order.h"
#include "graph/transform/prune.h"

namespace tessera {

std::string missing_logits(const Graph& graph) {
  if (graph.find_output("class_logits"))
    return "; this one tells the classes of texts (tessera classify)";
  if (graph.find_output("hidden") && !graph.find_output("logits"))
    return "; this one has no projection onto a vocabulary, and computes vectors of texts (tessera embed): its file "
           "has no head (lm_head.weight) and no embedding that is tied";
  return {};
}

Result<LanguageModel> find_language_model(const Graph& graph, std::string_view doing) {
  LanguageModel model;
  const auto logits = graph.find_output("logits");
  if (!logits || graph.type(*logits).shape.rank() != 3)
    return Status(StatusCode::kInvalidArgument,
                  format("{} wants a model with output \"logits\" [B, T, V]{}", doing, missing_logits(graph)));
  model.logits = *logits;
  const auto tokens = graph.find_tensor("tokens");
  if (!tokens || graph.tensor(*tokens).kind != TensorKind::kInput || graph.type(*tokens).shape.rank() != 2)
    return Status(StatusCode::kInvalidArgument,
                  format("{} wants a model with input \"tokens\" [B, T]", doing));
  model.tokens = *tokens;
  const auto positions = graph.find_tensor("positions");
  if (positions && graph.tensor(*positions).kind == TensorKind::kInput) model.positions = *positions;
  return model;
}

Status check_position_table(const Graph& graph, const LanguageModel& model, std::string_view option,
                            int64_t count) {
  for (const Node& node : graph.nodes())
    if (const auto look_up = find_look_up(graph, node); look_up && look_up->ids == model.positions)
      if (count > look_up->rows)
        return Status(StatusCode::kInvalidArgument,
                      format("{} is {}, the model has {} positions ('{}')", option, count, look_up->rows,
                             graph.tensor(look_up->table).name));
  return {};
}

std::vector<Attr> unbounded_routing(const Node& node) {
  std::vector<Attr> attrs(node.attrs.begin(), node.attrs.end());
  for (Attr& attr : attrs)
    if (attr.name == "capacity") attr.value = 0.0;
  return attrs;
}

Result<TensorId> add_scoped_state(Graph& graph, std::string_view scope, std::string_view which,
                                  const TensorType& type) {
  const std::string stem = scope.empty() ? std::string(which) : format("{}.{}", scope, which);
  std::string name = stem;
  for (int64_t i = 1; graph.find_tensor(name); ++i) name = format("{}.{}", stem, i);
  return graph.add_tensor(std::move(name), type, TensorKind::kState);
}

Result<Graph> logits_alone(const Graph& forward, TensorId hidden) {
  Graph graph = forward;
  const auto logits = forward.find_output("logits");
  graph.clear_outputs();
  if (logits) TSR_RETURN_IF_ERROR(graph.add_output("logits", *logits));
  if (hidden != kNoTensor) TSR_RETURN_IF_ERROR(graph.add_output("hidden", hidden));
  TSR_ASSIGN_OR_RETURN(const Graph sure, without_dropout(graph));
  TSR_ASSIGN_OR_RETURN(const Graph needed, prune(sure));
  return in_canonical_order(needed);
}

}  // namespace tessera
