// Units: in which multiples a dim may be cut so that every op it meets stays whole: heads of a merged dim,
// query heads in whole KV groups. Found once per graph; no op is named.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/sharding_rule.h"

namespace tessera {

struct Units {
  std::vector<ShardingRule> rules;            // by node, extents bound
  std::vector<std::vector<int64_t>> factors;  // by node and factor of its rule
  std::vector<std::vector<int64_t>> dims;     // by tensor and dim
};

// Least common multiples, passed along factors until nothing changes: a dim that is a product (kg) is cut in
// whole g, and so is every dim that shares its major factor. `graph` has no symbols left.
//
// `split_groups`: a product of two factors that may both be split (kg) is cut in steps of the second; for
// plans that put axes on both.
// `parts`: that axes cut features into. Where blocks of a weight would leave fewer units of a dim than that, the
// dim keeps the units that it has without them: what reads the weight does not take it as it arrives.
Result<Units> find_units(const Graph& graph, bool split_groups = false, int64_t parts = 1);

// Whether an operand of the node is of a block type and packs its rows along this factor.
bool is_packed(const Graph& graph, const Node& node, const ShardingRule& rule, char factor);

// Products of two factors that may both be split: KV heads, and the queries that share each. The fewest in
// the graph; 0 where there are none.
struct SharedHeads {
  int64_t heads = 0, queries = 0;
};
SharedHeads shared_heads(const Units& units);

// The factor of a dim that axes may sit on (the first of an extent other than 1), and how many elements of
// the dim one of its steps spans. Name 0 for a dim that is not indexed.
struct MajorFactor {
  char name = 0;
  int64_t span = 1;
};
MajorFactor major_factor(const ShardingRule& rule, std::string_view dim);

}  // namespace tessera
