// BlockMap: the block of a model that each node of its step belongs to. The model's ends
// count as blocks: number 0 precedes the first block, the last number follows the last.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera {

struct BlockMap {
  int32_t blocks = 0;             // of the model, without its ends
  std::vector<int32_t> of_node;   // 0: before the first block; 1 to blocks; blocks + 1: after the last
  int32_t after() const { return blocks + 1; }
};

// Blocks are recognised by scope (graph/analysis/block_scope.h). A backward node belongs to its forward node's
// block, a sum of gradients to the latest block of its addends, an update to its parameter's first reader.
BlockMap find_blocks(const Graph& step);

}  // namespace tessera
