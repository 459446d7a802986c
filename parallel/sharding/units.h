// Units: the granularity at which a dim may be cut so that every op stays whole: heads of a
// merged dim, query heads in whole KV groups. Computed once per graph, without naming ops.
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

// Least common multiples, propagated along factors to a fixed point: a product dim (kg) is
// cut in whole g, as is every dim that shares its major factor. `graph` has no symbols.
//
// `split_groups`: a product of two splittable factors (kg) is
// cut in steps of the second, for plans with axes on both.
// `parts`: parts of feature dims. If a weight's blocks would leave fewer units than that, the
// dim keeps its units without blocks; the weight's reader then does not take it as it arrives.
Result<Units> find_units(const Graph& graph, bool split_groups = false, int64_t parts = 1);

// Whether a quantized operand of the node has its blocks along this factor.
bool is_packed(const Graph& graph, const Node& node, const ShardingRule& rule, char factor);

// SharedHeads: a product of two splittable factors: KV heads,
// and the queries per head. The smallest in the graph; 0: none.
struct SharedHeads {
  int64_t heads = 0, queries = 0;
};
SharedHeads shared_heads(const Units& units);

// MajorFactor: the factor of a dim that axes may be on (the first of an extent
// other than 1), and the elements per step. Name 0: the dim is not indexed.
struct MajorFactor {
  char name = 0;
  int64_t span = 1;
};
MajorFactor major_factor(const ShardingRule& rule, std::string_view dim);

}  // namespace tessera
