// Parameter copies: what forward makes of a parameter alone, element by element, such as its cast in mixed
// precision, or its codes of 8 bits with a scale that is measured on it.
//
// An element-wise function of one operand, and of scalars that are the same everywhere, commutes with
// gathers: f(gather(w)) and gather(f(w)) hold the same bits. So it is computed on whichever side has fewer
// bytes to gather. A copy that is narrower than its parameter is made of the shard that is stored, and
// gathered; a wider one is made of what was gathered.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/sharding_rule.h"

namespace tessera {

// One operand with dims, others that are scalars, one result, and the same dims in both, one factor each that
// passes through.
bool is_elementwise(const ShardingRule& rule, const Node& node);

struct ParameterCopy {
  NodeId node = kNoNode;
  TensorId parameter = kNoTensor, copy = kNoTensor;
  bool narrows = false;  // has fewer bytes than the parameter
  // What is measured on the parameter for it: nodes whose only operand is the parameter and whose result is a
  // scalar.
  std::vector<NodeId> measures = {};
};

// Of a graph's forward nodes, in its order.
std::vector<ParameterCopy> parameter_copies(const Graph& graph);

// By tensor: trained parameters of which everything but the update reads narrow copies alone.
std::vector<bool> read_as_narrow_copies(const Graph& graph, std::span<const ParameterCopy> copies);

// Has the copies that narrow, and what is measured for them, made where `plan` stores their parameters.
void place_narrow_copies(const Graph& graph, std::span<const ParameterCopy> copies, Plan& plan);

}  // namespace tessera
