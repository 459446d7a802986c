// Weights whose rows a plan keeps whole, since they have fewer blocks than ranks.
#pragma once

#include <string>
#include <vector>

#include "parallel/lowering/entry_layout.h"

namespace tessera {

// A sentence per kind of weight that multiplies a split operand but cannot be split along
// with it: its name with `*` for numbers, units and ranks, and the plan's alternative.
std::vector<std::string> explain_unsplit_weights(const EntryLayout& layout);

}  // namespace tessera
