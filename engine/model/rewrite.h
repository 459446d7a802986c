// Modified copies of a forward graph; graphs are append-only.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tessera {

bool has_dropout(const Graph& graph);

// Sets the probability of every dropout op to `p`.
Result<Graph> with_dropout(const Graph& graph, double p);

// Parameters of the graph whose name matches one of `patterns` (comma-separated, '*' matches any characters).
// kNotFound, beginning with `purpose`, when a pattern matches nothing.
Result<std::vector<TensorId>> matching_parameters(const Graph& graph, std::string_view patterns,
                                                  std::span<const TensorId> of, std::string_view purpose);

// Makes parameters whose name matches one of `patterns` (comma-separated, '*' matches any characters) not
// trainable. kNotFound when a pattern matches nothing.
Status freeze(Graph& graph, std::string_view patterns);

// Freezes all parameters that do not match. kNotFound if a pattern matches no trainable parameter.
Status train_only(Graph& graph, std::string_view patterns);

}  // namespace tessera
