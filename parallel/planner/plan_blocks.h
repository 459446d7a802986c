// A plan's decisions per block of a model; adjacent equal blocks are one entry.
#pragma once

#include <vector>

#include "graph/explanation.h"
#include "parallel/lowering/entry_layout.h"

namespace tessera {

// Blocks are recognised by scopes of forward nodes: "block.3.attention" belongs to
// "block.3". Operations that contract, or read a parameter, are listed by op and weight.
std::vector<BlockDecision> explain_blocks(const EntryLayout& layout);

// "b over dp, n over tp"; "whole" without splits.
std::string factor_text(const NodeSharding& sharding, const DeviceMesh& mesh);

}  // namespace tessera
