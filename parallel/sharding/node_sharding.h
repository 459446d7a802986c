// NodeSharding: the layouts implied by a node's factor assignment, of inputs and outputs.
// Equal for all ranks; `factor_views` gives one rank's part.
#pragma once

#include <span>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/sharding_rule.h"

namespace tessera {

struct NodeSharding {
  ShardingRule rule;                  // extents and units bound (global); `factors` has the same index
  std::vector<DimSharding> factors;   // per factor of the rule: its axes and unit
  std::vector<ShardingSpec> inputs;   // required
  std::vector<ShardingSpec> outputs;  // produced
};

// The rule of `node` with extents bound to `graph`'s types, which may hold symbols.
Result<ShardingRule> rule_of(const Graph& graph, const Node& node);

// Refuses axes on an unshardable or minor factor, more parts than units
// (naming the maximum), and a carried axis (NodePlan::carried: partial sums pass unreduced) in
// whose inputs the op is not linear.
//
// Partial operands. A sharded kReduce factor leaves outputs without it partial
// over its axes. An input without the factor that enters linearly with one that
// has it (the bias of a row-split matmul) must then be an addend too: partial
// over the same axes, which is free (kept on coordinate 0, zero elsewhere).
Result<NodeSharding> shard_node(const Graph& graph, NodeId node, const NodePlan& plan,
                                const DeviceMesh& mesh);

// In the rule's order.
std::vector<FactorView> factor_views(const NodeSharding& sharding, const DeviceMesh& mesh,
                                     std::span<const int32_t> coordinates);

// Whether each result element depends on a whole operand.
bool needs_whole(const ShardingRule& rule);

std::string describe(const Graph& graph, NodeId node);  // for messages: "matmul 12 (block.0.mlp)"

}  // namespace tessera
