// Weights whose rows a plan leaves whole, as these come in fewer blocks than ranks.
#pragma once

#include <string>
#include <vector>

#include "parallel/lowering/entry_layout.h"

namespace tessera {

// A sentence for each kind of weight that multiplies something split over ranks and could not be split along with
// it: its name with `*` for numbers, the units and the ranks, and what the plan does instead.
std::vector<std::string> explain_unsplit_weights(const EntryLayout& layout);

}  // namespace tessera
