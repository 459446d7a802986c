// LanguageModel: the tensors of a language model's graph from which its incremental form (serving.h) is built.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

struct LanguageModel {
  TensorId logits = kNoTensor;     // output [B, T, V]
  TensorId tokens = kNoTensor;     // input [B, T]
  TensorId positions = kNoTensor;  // input; kNoTensor where the model has none
};

// Returns the purpose of a model without output "logits", as the end of a message; empty if unknown.
std::string missing_logits(const Graph& graph);

// kInvalidArgument for any other graph; `doing` is for messages: "serving".
Result<LanguageModel> find_language_model(const Graph& graph, std::string_view doing);

// kInvalidArgument where a learned table of positions has fewer than `count` rows:
// beyond them positions would silently read as zero. `option` is the name of `count`.
Status check_position_table(const Graph& graph, const LanguageModel& model, std::string_view option,
                            int64_t count);

// Attributes of a moe_route that drops no token: a part of a sequence cannot see the slots that the others took.
std::vector<Attr> unbounded_routing(const Node& node);

// Adds a state "<scope>.<which>", numbered where a scope holds several.
Result<TensorId> add_scoped_state(Graph& graph, std::string_view scope, std::string_view which,
                                  const TensorType& type);

// The graph of the logits alone, without dropout and other outputs, in
// canonical order; with `hidden` also of that tensor, as output "hidden".
Result<Graph> logits_alone(const Graph& forward, TensorId hidden = kNoTensor);

}  // namespace tessera
