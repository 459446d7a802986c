// Explanation of an entry's layout: decisions per block of the model, and weights whose rows stay whole.
#pragma once

#include <string>
#include <vector>

#include "graph/explanation.h"
#include "parallel/lowering/entry_layout.h"

namespace tessera {

// Blocks are recognised by scopes of forward nodes: "block.3.attention" belongs to
// "block.3". Operations that contract, or read a parameter, are listed by op and weight.
// Adjacent equal blocks are one entry.
std::vector<BlockDecision> explain_blocks(const EntryLayout& layout);

// "b over dp, n over tp"; "whole" without splits.
std::string factor_text(const NodeSharding& sharding, const DeviceMesh& mesh);

// A sentence per kind of weight that multiplies a split operand but cannot be split along
// with it: its name with `*` for numbers, units and ranks, and the plan's alternative.
std::vector<std::string> explain_unsplit_weights(const EntryLayout& layout);

}  // namespace tessera
