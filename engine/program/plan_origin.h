// The origin of a plan, read from its own text: errors for plans of other graphs.
#pragma once

#include <string_view>

#include "graph/base/status.h"
#include "graph/graph.h"

namespace tessera {

// kInvalidArgument, with what the plan is of and the remedy, where the text says the fingerprint of another graph. No error for a
// text that says none: reading it does.
Status check_plan_graph(std::string_view text, const Graph& graph);

// Whether the text says the fingerprint of `graph`.
bool is_plan_of(std::string_view text, const Graph& graph);

}  // namespace tessera
