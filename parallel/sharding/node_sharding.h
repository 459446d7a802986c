// NodeSharding: what a node's factor assignment means for its operands: the layout each input must arrive in,
// the layout each output leaves in, and where a rank's shard lies in every factor. The same for all ranks but
// for `factor_views` and `local_type`.
#pragma once

#include <span>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/sharding_rule.h"

namespace tessera {

struct NodeSharding {
  ShardingRule rule;                  // extents and units bound (global); FactorSplit below by the same index
  std::vector<DimSharding> factors;   // per factor of the rule: its axes and unit
  std::vector<ShardingSpec> inputs;   // wanted
  std::vector<ShardingSpec> outputs;  // produced
};

// The rule of `node` with extents bound to `graph`'s types, which may hold symbols.
Result<ShardingRule> rule_of(const Graph& graph, const Node& node);

// Refuses: axes on a factor that may not be sharded or that is the minor part of a product, more parts than
// units (naming the most that it admits), and a carried axis that the rule is not linear in.
//
// Partial operands. A kReduce factor that is sharded leaves the outputs without it partial over its axes. An
// input that lacks the factor but enters linearly together with one that has it (the bias of a row-split
// matmul) must then be an addend too: it is wanted partial over the same axes, which is free (kept on
// coordinate 0, zero elsewhere).
Result<NodeSharding> shard_node(const Graph& graph, NodeId node, const NodePlan& plan,
                                const DeviceMesh& mesh);

// In the order of the rule.
std::vector<FactorView> factor_views(const NodeSharding& sharding, const DeviceMesh& mesh,
                                     std::span<const int32_t> coordinates);

// Whether the op needs all of an operand for each element of its result.
bool needs_whole(const ShardingRule& rule);

std::string describe(const Graph& graph, NodeId node);  // "matmul 12 (block.0.mlp)"; for messages

}  // namespace tessera
