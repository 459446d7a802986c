// The parts of a language model's graph that its incremental form (serving.h) is made from.
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

// What a model without output "logits" is for, as the end of a message; empty where it is not known.
std::string missing_logits(const Graph& graph);

// kInvalidArgument where the graph is none; `doing` is for messages: "serving".
Result<LanguageModel> find_language_model(const Graph& graph, std::string_view doing);

// kInvalidArgument where a learned table of positions, which ends, has fewer than `count` rows: beyond them positions would
// silently read as zero. `option` is the name of `count`.
Status check_position_table(const Graph& graph, const LanguageModel& model, std::string_view option,
                            int64_t count);

// Attributes of a moe_route that drops no token: a part of a sequence does not know how many slots the others took.
std::vector<Attr> unbounded_routing(const Node& node);

// Adds a state "<scope>.<which>", numbered where a scope holds several.
Result<TensorId> add_scoped_state(Graph& graph, std::string_view scope, std::string_view which,
                                  const TensorType& type);

// The graph of the logits alone, without dropout and what else a model may have, in canonical order; with `hidden` also of
// that tensor, as output "hidden".
Result<Graph> logits_alone(const Graph& forward, TensorId hidden = kNoTensor);

}  // namespace tessera
