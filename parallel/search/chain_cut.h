// Cuts a chain of blocks into stages that minimize the slowest. Exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// ChainEnds: costs before the first block and after the last, which belong to the first and last stage.
struct ChainEnds {
  double first = 0, last = 0;
};

// Blocks per stage, each at least one: among optimal cuts, one with about equal
// stages. Empty for more stages than blocks. `costs`: per block, not negative.
std::vector<int64_t> cut_chain(std::span<const double> costs, ChainEnds ends, int32_t stages);

}  // namespace tessera
