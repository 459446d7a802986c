// The profile of a graph as JSON, documented in tessera.h at tsr_graph_profile.
#pragma once

#include <string>

#include "capi/engine/options.h"
#include "graph/graph.h"

namespace tessera {

Result<std::string> graph_profile_json(const Graph& graph, const Options& options);

}  // namespace tessera
