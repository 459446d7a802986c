// GraphDims: which dims of a graph's tensors are the batch and which the sequence. The batch is symbol B; the
// sequence is the dim after it in token inputs ([B, T] of integers, [B, T, ...] of reals) and every dim that
// a factor leads there from.
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

  // By node: the factors of its rule that run along a sequence, that of its first result first. More than one
  // where two sequences meet (attention: queries and keys).
  std::vector<std::string> sequence_factors;
};

// `symbolic` has symbol B, `bound` and `units` the same graph without symbols.
GraphDims find_dims(const Graph& symbolic, const Graph& bound, const Units& units);

// Every dim and every factor that runs along a sequence: all that factors lead to, forwards and backwards,
// from the sequences of inputs. Parameters and state that have such a dim are among them (weights that mix
// tokens).
struct SequenceDims {
  std::vector<std::vector<bool>> dims;     // by tensor and dim
  std::vector<std::vector<bool>> factors;  // by node and factor of its rule
};

// `rules`: by node, extents bound.
SequenceDims find_sequence_dims(const Graph& symbolic, const Graph& bound,
                                std::span<const ShardingRule> rules);

}  // namespace tessera
