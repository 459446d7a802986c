// Requested rows: the rows of a language model's tensors that are sufficient for logits of single tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera {

// The number of operands that read each tensor.
std::vector<uint32_t> operand_uses(const Graph& graph);

// Finds the earliest tensor [B, T, C] whose requested rows determine those of `logits`
// [B, T, V]: back over nodes that compute a row from a row, whose results have no
// other reader. The projection onto the vocabulary then runs on these rows alone.
TensorId earliest_wanted(const Graph& graph, TensorId logits, const std::vector<uint32_t>& uses);

}  // namespace tessera
