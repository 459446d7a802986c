// GraphDims: the batch and sequence dims of a graph's tensors. The batch is
// symbol B; the sequence is the next dim in token inputs ([B, T] of
// integers, [B, T, ...] of reals), and every dim connected to it by factors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "parallel/sharding/units.h"

namespace tessera {

struct GraphDims {
  std::vector<int> batch;     // by tensor: the dim, or -1
  std::vector<int> sequence;  // by tensor: the dim, or -1

  // By node: factors of its rule along a sequence, its first result's
  // first. Several where two sequences meet (attention: queries and keys).
  std::vector<std::string> sequence_factors;
};

// `symbolic` has symbol B; `bound` and `units` are of the same graph without symbols.
GraphDims find_dims(const Graph& symbolic, const Graph& bound, const Units& units);

// SequenceDims: every dim and factor along a sequence, connected
// to input sequences by factors in either direction, including
// those of parameters and state (weights that mix tokens).
struct SequenceDims {
  std::vector<std::vector<bool>> dims;     // by tensor and dim
  std::vector<std::vector<bool>> factors;  // by node and factor of its rule
};

// `rules`: by node, extents bound.
SequenceDims find_sequence_dims(const Graph& symbolic, const Graph& bound,
                                std::span<const ShardingRule> rules);

}  // namespace tessera
