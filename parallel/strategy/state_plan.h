// The plan of an entry that only moves what state holds (copies of pages, reading and writing them): every device works
// on its own part of each state, where another entry's plan has put it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/plan.h"

namespace tessera {

// Every node's first operand is a state, or made from one by such nodes; it lies as `owner`, a plan of `owner_graph`,
// has that state, and the node's other operands and results follow. States are matched by name.
Result<Plan> plan_along_state(const Graph& graph, std::vector<std::pair<std::string, int64_t>> symbols,
                              const Graph& owner_graph, const Plan& owner);

}  // namespace tessera
