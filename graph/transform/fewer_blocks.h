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
// equal but for salts of random numbers. What a block takes of the one before is then taken of the last one kept. Blocks are told by scope
// (graph/analysis/block_scope.h). kUnsupported, naming the blocks, where one reads another than the one before it.
Result<FewerBlocks> with_fewer_blocks(const Graph& forward);

}  // namespace tessera
