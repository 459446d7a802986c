// The origin of a plan, read from its text, for errors about plans of other graphs.
#pragma once

#include <string_view>

#include "graph/base/status.h"
#include "graph/graph.h"

namespace tessera {

// kInvalidArgument, with the plan's origin and the remedy, if the text has another
// graph's fingerprint. A text without a fingerprint passes; parsing checks it.
Status check_plan_graph(std::string_view text, const Graph& graph);

// Whether the text has the fingerprint of `graph`.
bool is_plan_of(std::string_view text, const Graph& graph);

}  // namespace tessera
