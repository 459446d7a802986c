// Plan of an entry that only moves state (copies, reads and writes of
// pages): every device works on its own part, in another entry's layout.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/plan.h"

namespace tessera {

// Every node's first operand is a state, or derived from one; it has the layout of `owner`, a
// plan of `owner_graph`, and other operands and results follow. States are matched by name.
Result<Plan> plan_along_state(const Graph& graph, std::vector<std::pair<std::string, int64_t>> symbols,
                              const Graph& owner_graph, const Plan& owner);

}  // namespace tessera
