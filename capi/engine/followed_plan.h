// Plans that were made before, to be followed: read, and held against their graph and what is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/program.h"

namespace tessera {

// `given` in the order that `plan` numbers its nodes and tensors in: the canonical one, or, for plans of earlier
// versions, the order given. Names are those of `given`. kInvalidArgument where the plan is another graph's.
Result<Graph> graph_of_plan(const Plan& plan, const Graph& given);

// The plan of `graph` in the file at `path`.
Result<Plan> read_plan_file(const std::string& path, const Graph& graph);

// Checks that the plan is consistent, and for this batch and these symbols.
Status check_followed(const Plan& plan, const Graph& graph, int64_t batch,
                      const std::vector<std::pair<std::string, int64_t>>& symbols);

// Checks that the promised bytes are those of its program, unless the plan was edited.
Status check_promise(const Plan& plan, const Program& program);

}  // namespace tessera
