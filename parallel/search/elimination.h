// A graph of decisions: every node is computed in one of its ways, each with a time and bytes, and every edge
// costs what the two ways at its ends need to meet (a layout conversion). Which ways, so that the sum of
// times is least within a budget of bytes: exact, by eliminating one node after another with frontiers as
// values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "parallel/search/frontier.h"

namespace tessera {

struct DecisionEdge {
  int32_t from = 0, to = 0;
  std::vector<Tradeoff> costs;  // [way of from][way of to], row-major; infinite time: impossible
};

struct DecisionGraph {
  std::vector<std::vector<Tradeoff>> nodes;  // by node: its ways; infinite time: impossible
  std::vector<DecisionEdge> edges;
};

// Every node has a way, every edge joins two nodes and has a cost for each pair of their ways.
Status check(const DecisionGraph& graph);

struct Decision {
  double time_s = 0;
  int64_t bytes = 0;
  std::vector<int32_t> ways;  // by node
};

struct Decisions {
  std::vector<Decision> frontier;  // by bytes ascending
  bool proved = true;              // false: frontiers were thinned to most_points on the way
};

// `budget_bytes`: points above it are dropped on the way; INT64_MAX for the whole curve. `most_points` bounds
// each frontier (the fastest and the smallest always stay). kOutOfMemory when nothing fits.
Result<Decisions> eliminate(const DecisionGraph& graph, int64_t budget_bytes, size_t most_points = 4096);

}  // namespace tessera
