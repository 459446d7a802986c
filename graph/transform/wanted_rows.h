// Which rows of a language model's tensors are enough, where logits of single tokens are wanted.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera {

// Operands that read each tensor.
std::vector<uint32_t> operand_uses(const Graph& graph);

// The earliest tensor [B, T, C] of which the wanted rows are enough for those of `logits` [B, T, V]: back over nodes that
// compute a row from a row, whose results have no other reader. The projection onto the vocabulary then runs on these
// rows alone.
TensorId earliest_wanted(const Graph& graph, TensorId logits, const std::vector<uint32_t>& uses);

}  // namespace tessera
