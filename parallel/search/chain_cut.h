// Where to cut a chain of blocks into stages, so that the slowest stage takes least. Exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// What comes before the first block and after the last goes with the first and the last stage.
struct ChainEnds {
  double first = 0, last = 0;
};

// Blocks of every stage, each one or more: of the cuts whose slowest stage takes least, one whose stages take about the same.
// Nothing for more stages than blocks. `costs`: of every block, not negative.
std::vector<int64_t> cut_chain(std::span<const double> costs, ChainEnds ends, int32_t stages);

}  // namespace tessera
