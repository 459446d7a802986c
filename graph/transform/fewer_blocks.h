// Graph -> graph: a deep model with few of its blocks, off which costs of the whole are read (parallel/composition).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

struct FewerBlocks {
  Graph graph;
  // By block of the whole model, in order: the block of `graph`, counted from 0, that is like it.
  std::vector<int32_t> like;
};

// Keeps the first block, the last, and between them the first of every kind: blocks are of one kind whose nodes, types and attributes are
// equal, salts of random numbers aside. A kept block reads the last kept block before it. Scopes of nodes tell the blocks
// (graph/analysis/block_scope.h). kUnsupported, naming the blocks, where one reads another than the one before it.
Result<FewerBlocks> with_fewer_blocks(const Graph& forward);

}  // namespace tessera
