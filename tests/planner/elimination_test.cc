#include "parallel/search/elimination.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "tests/planner/decision_graphs.h"

using namespace tessera;
using namespace tessera::testing;

TEST_CASE("elimination yields exactly the frontier of all combinations, on 300 random graphs") {
  std::mt19937 random(1);
  int feasible = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const DecisionGraph graph =
        random_decisions(random, 1 + static_cast<int>(random() % 6), 5, static_cast<int>(random() % 4));
    const int64_t budget = trial % 3 == 0 ? INT64_MAX : static_cast<int64_t>(50 + random() % 300);
    std::vector<Tradeoff> all;
    for_each_combination(graph, [&](const std::vector<int32_t>& ways) {
      const Tradeoff sum = price(graph, ways);
      if (std::isfinite(sum.time_s) && sum.bytes <= budget) all.push_back(sum);
    });
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

TEST_CASE("elimination of 60 operations with branches keeps no more points than it may") {
  std::mt19937 random(2);
  const DecisionGraph graph = random_decisions(random, 60, 8, 0);
  DecisionGraph branching = graph;
  for (int v = 0; v + 3 < 60; v += 4) {  // residual edges
    DecisionEdge edge{v, v + 3, {}};
    edge.costs.assign(
        graph.nodes[static_cast<size_t>(v)].size() * graph.nodes[static_cast<size_t>(v + 3)].size(),
        {1, 1, 0});
    branching.edges.push_back(edge);
  }
  const auto found = eliminate(branching, INT64_MAX, 256);
  REQUIRE(found.ok());
  CHECK(!found->frontier.empty());
  CHECK(found->frontier.size() <= 256);
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
