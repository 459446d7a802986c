// Parameter copies: forward functions of a parameter alone, element by element,
// such as its cast in mixed precision, or its 8-bit codes with a measured scale.
//
// An element-wise function of one operand and replicated scalars
// commutes with gathers: f(gather(w)) and gather(f(w)) have the
// same bits. So it runs where fewer bytes are gathered: a narrower
// copy on the stored shard before the gather, a wider one after it.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/sharding_rule.h"

namespace tessera {

// One operand with dims, others scalar, one result
// with the same dims, and a pass-through factor each.
bool is_elementwise(const ShardingRule& rule, const Node& node);

struct ParameterCopy {
  NodeId node = kNoNode;
  TensorId parameter = kNoTensor, copy = kNoTensor;
  bool narrows = false;  // has fewer bytes than the parameter
  // Nodes that measure the parameter for it:
  // only operand the parameter, scalar result.
  std::vector<NodeId> measures = {};
};

// Copies by a graph's forward nodes, in order.
std::vector<ParameterCopy> parameter_copies(const Graph& graph);

// By tensor: trained parameters whose readers, except the update, all read narrow copies.
std::vector<bool> read_as_narrow_copies(const Graph& graph, std::span<const ParameterCopy> copies);

// Computes narrowing copies, and their measures, in the stored layout of their parameters.
void place_narrow_copies(const Graph& graph, std::span<const ParameterCopy> copies, Plan& plan);

}  // namespace tessera
