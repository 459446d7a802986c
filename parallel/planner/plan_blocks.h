// What a plan does with each block of a model; neighbours that are treated alike are one entry.
#pragma once

#include <vector>

#include "graph/explanation.h"
#include "parallel/lowering/entry_layout.h"

namespace tessera {

// Blocks are told by the scopes of their forward nodes: "block.3.attention" is of "block.3". Operations that
// contract something or read a parameter are listed, by their op and the weight that they read.
std::vector<BlockDecision> explain_blocks(const EntryLayout& layout);

// "b over dp, n over tp"; "whole" where nothing is split.
std::string factor_text(const NodeSharding& sharding, const DeviceMesh& mesh);

}  // namespace tessera
