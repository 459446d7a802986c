// Graph -> graph: a deep model with a representative sample of its blocks, from which costs of the whole are composed (parallel/composition).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

struct FewerBlocks {
  Graph graph;
  // By block of the whole model, in order: its representative in `graph`, counted from 0.
  std::vector<int32_t> like;
};

// Keeps the first block, the last, and between them the first of every kind: blocks of one kind have equal nodes, types and
// attributes, except salts of random numbers. A kept block reads the last kept block before it. Scopes of nodes identify the
// blocks (graph/analysis/block_scope.h). kUnsupported, naming the blocks, where one reads another than the one before it.
Result<FewerBlocks> with_fewer_blocks(const Graph& forward);

}  // namespace tessera
