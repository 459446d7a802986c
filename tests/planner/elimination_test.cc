#include "parallel/search/elimination.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>

using namespace tessera;

namespace {

// Mostly a chain, with some edges across; a few impossible pairs.
DecisionGraph random_graph(std::mt19937& random, int nodes, int most_ways, int extra) {
  DecisionGraph graph;
  for (int v = 0; v < nodes; ++v) {
    graph.nodes.emplace_back();
    const int ways = 1 + static_cast<int>(random() % static_cast<unsigned>(most_ways));
    for (int w = 0; w < ways; ++w)
      graph.nodes.back().push_back(
          {1.0 + static_cast<double>(random() % 50), static_cast<int64_t>(random() % 100), 0});
  }
  const auto connect = [&](int a, int b) {
    DecisionEdge edge{a, b, {}};
    const size_t pairs =
        graph.nodes[static_cast<size_t>(a)].size() * graph.nodes[static_cast<size_t>(b)].size();
    for (size_t i = 0; i < pairs; ++i)
      edge.costs.push_back({random() % 12 == 0 ? INFINITY : static_cast<double>(random() % 20),
                            static_cast<int64_t>(random() % 10), 0});
    graph.edges.push_back(std::move(edge));
  };
  for (int v = 1; v < nodes; ++v) random() % 2 ? connect(v - 1, v) : connect(v, v - 1);
  for (int i = 0; i < extra && nodes > 2; ++i) {
    const int a = static_cast<int>(random() % static_cast<unsigned>(nodes));
    const int b = (a + 2 + static_cast<int>(random() % static_cast<unsigned>(nodes - 2))) % nodes;
    if (a != b) connect(a, b);
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

}  // namespace

TEST_CASE("elimination yields exactly the frontier of all combinations, on 300 random graphs") {
  std::mt19937 random(1);
  int feasible = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const DecisionGraph graph =
        random_graph(random, 1 + static_cast<int>(random() % 6), 5, static_cast<int>(random() % 4));
    const int64_t budget = trial % 3 == 0 ? INT64_MAX : static_cast<int64_t>(50 + random() % 300);
    std::vector<Tradeoff> all;
    std::vector<int32_t> ways(graph.nodes.size(), 0);
    const std::function<void(size_t)> try_all = [&](size_t v) {
      if (v == ways.size()) {
        const Tradeoff sum = price(graph, ways);
        if (std::isfinite(sum.time_s) && sum.bytes <= budget) all.push_back(sum);
        return;
      }
      for (size_t w = 0; w < graph.nodes[v].size(); ++w) ways[v] = static_cast<int32_t>(w), try_all(v + 1);
    };
    try_all(0);
    const Frontier wanted = frontier(all);
    const auto found = eliminate(graph, budget);
    REQUIRE(found.ok() == !wanted.empty());
    if (!found.ok()) continue;
    ++feasible;
    CHECK(found->proved);
    REQUIRE(found->frontier.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Decision& decision = found->frontier[i];
      CHECK(decision.bytes == wanted[i].bytes);
      CHECK(decision.time_s == wanted[i].time_s);
      const Tradeoff again = price(graph, decision.ways);
      CHECK(again.bytes == decision.bytes);
      CHECK(again.time_s == decision.time_s);
    }
  }
  CHECK(feasible > 200);
}

TEST_CASE("elimination of 60 operations with branches takes well under a second") {
  std::mt19937 random(2);
  const DecisionGraph graph = random_graph(random, 60, 8, 0);
  DecisionGraph branching = graph;
  for (int v = 0; v + 3 < 60; v += 4) {  // residual edges
    DecisionEdge edge{v, v + 3, {}};
    edge.costs.assign(
        graph.nodes[static_cast<size_t>(v)].size() * graph.nodes[static_cast<size_t>(v + 3)].size(),
        {1, 1, 0});
    branching.edges.push_back(edge);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto found = eliminate(branching, INT64_MAX, 256);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  REQUIRE(found.ok());
  MESSAGE("60 operations in ", seconds, " s, ", found->frontier.size(), " points");
  CHECK(seconds < 1);
}

TEST_CASE("inconsistent decision graphs are refused") {
  DecisionGraph graph;
  graph.nodes = {{{1, 1, 0}}, {{1, 1, 0}, {2, 0, 0}}};
  graph.edges = {{0, 1, {{0, 0, 0}}}};
  CHECK(!eliminate(graph, 10).ok());
  graph.edges = {{0, 0, {{0, 0, 0}}}};
  CHECK(!eliminate(graph, 10).ok());
  graph.edges.clear();
  CHECK(eliminate(graph, 10).ok());
  CHECK(eliminate(graph, 0).status().code() == StatusCode::kOutOfMemory);
}
