// BlockMap: which block of a model every node of its step belongs to. Ends of the model count as blocks of their own: what comes before
// the first block is number 0, what comes after the last is the last number.
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

// Blocks are told by scope (graph/analysis/block_scope.h). A backward node belongs to its forward node's block, a sum of gradients to the
// latest block that its addends come from, an update to its parameter's first reader.
BlockMap find_blocks(const Graph& step);

}  // namespace tessera
