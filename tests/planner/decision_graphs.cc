#include "tests/planner/decision_graphs.h"

#include <algorithm>
#include <cmath>

namespace tessera::testing {

DecisionGraph random_decisions(std::mt19937& random, int nodes, int most_ways, int extra, int reach) {
  DecisionGraph graph;
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int v = 0; v < nodes; ++v) {
    graph.nodes.emplace_back();
    const int ways = 1 + below(most_ways);
    for (int w = 0; w < ways; ++w)
      graph.nodes.back().push_back({1.0 + below(50), static_cast<int64_t>(below(100)), 0});
  }
  const auto connect = [&](int a, int b) {
    DecisionEdge edge{a, b, {}};
    const size_t pairs =
        graph.nodes[static_cast<size_t>(a)].size() * graph.nodes[static_cast<size_t>(b)].size();
    for (size_t i = 0; i < pairs; ++i) {
      const double time = below(12) == 0 ? INFINITY : below(20);
      edge.costs.push_back({time, static_cast<int64_t>(below(10)), 0});
    }
    graph.edges.push_back(std::move(edge));
  };
  for (int v = 1; v < nodes; ++v) below(2) ? connect(v - 1, v) : connect(v, v - 1);
  for (int i = 0; i < extra && nodes > 2; ++i) {
    const int a = below(nodes), steps = 2 + below(std::min(nodes - 2, reach > 0 ? reach : nodes));
    const int b = reach > 0 ? a + steps : (a + steps) % nodes;
    if (a != b && b < nodes) connect(a, b);
  }
  return graph;
}

Tradeoff price(const DecisionGraph& graph, const std::vector<int32_t>& ways) {
  Tradeoff sum;
  const auto add = [&](const Tradeoff& one) { sum.time_s += one.time_s, sum.bytes += one.bytes; };
  for (size_t v = 0; v < ways.size(); ++v) add(graph.nodes[v][static_cast<size_t>(ways[v])]);
  for (const DecisionEdge& edge : graph.edges)
    add(edge.costs[static_cast<size_t>(ways[static_cast<size_t>(edge.from)]) *
                       graph.nodes[static_cast<size_t>(edge.to)].size() +
                   static_cast<size_t>(ways[static_cast<size_t>(edge.to)])]);
  return sum;
}

void for_each_combination(const DecisionGraph& graph,
                          const std::function<void(const std::vector<int32_t>&)>& visit) {
  std::vector<int32_t> ways(graph.nodes.size(), 0);
  for (size_t v = 0; v < ways.size();) {
    visit(ways);
    for (v = 0; v < ways.size(); ++v) {
      if (static_cast<size_t>(++ways[v]) < graph.nodes[v].size()) break;
      ways[v] = 0;
    }
  }
}

}  // namespace tessera::testing
