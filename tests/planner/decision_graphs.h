// Random decision graphs, and what a combination of ways costs: by addition, as the definition says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "parallel/search/elimination.h"

namespace tessera::testing {

// Mostly a chain, with `extra` edges across, at most `reach` nodes further (0: any); a few impossible pairs.
// Times and bytes are whole numbers, so that sums are exact in any order.
DecisionGraph random_decisions(std::mt19937& random, int nodes, int most_ways, int extra, int reach = 0);

Tradeoff price(const DecisionGraph& graph, const std::vector<int32_t>& ways);

void for_each_combination(const DecisionGraph& graph,
                          const std::function<void(const std::vector<int32_t>&)>& visit);

}  // namespace tessera::testing
