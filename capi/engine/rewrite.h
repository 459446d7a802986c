// Copies of a forward graph with one thing changed; graphs are append-only, so a change is a copy.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace tessera {

bool has_op(const Graph& graph, std::string_view op);

// Every dropout op gets probability `p`.
Result<Graph> with_dropout(const Graph& graph, double p);

// Parameters whose name matches one of `patterns` (comma-separated, '*' matches any characters) stop being
// trainable. kNotFound when a pattern matches nothing.
Status freeze(Graph& graph, std::string_view patterns);

}  // namespace tessera
