// Graph -> graph: removal of unread nodes, and of dropout, which is for training only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

// Drops every node that no output, update or gradient depends on. Inputs, parameters, constants and state
// stay, used or not: callers know them by name.
Result<Graph> prune(const Graph& graph);

// Marks the tensors that `results` depend on, themselves included, and all results of their producers.
std::vector<bool> needed_by(const Graph& graph, std::span<const TensorId> results);

// Copies the marked tensors with their producers, in order. Outputs, updates and gradients are left to the caller.
Status copy_chosen(GraphCopy& copy, const std::vector<bool>& chosen);

// Marks the tensors that only dropouts read, for their noise: seeds, rates. `first_salt`: of dropouts whose salt is at least that.
std::vector<bool> read_by_noise_alone(const Graph& graph, int64_t first_salt = INT64_MIN);

// The graph with every dropout whose salt is at least `first_salt` replaced
// by its operand. Inputs of their noise alone are removed too.
Result<Graph> without_dropout(const Graph& graph, int64_t first_salt = INT64_MIN);

}  // namespace tessera
