#include "parallel/search/best_decision.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/full.h"
#include "tests/planner/decision_graphs.h"
#include "tests/planner/integer_program.h"
#include "tests/skip.h"

using namespace tessera;
using namespace tessera::testing;

TEST_CASE("the best decision is that of enumeration, on 300 random graphs and budgets") {
  std::mt19937 random(1);
  int feasible = 0, limited = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const DecisionGraph graph =
        random_decisions(random, 1 + static_cast<int>(random() % 7), 5, static_cast<int>(random() % 4));
    const int64_t budget = trial % 5 == 0 ? INT64_MAX : static_cast<int64_t>(50 + random() % 300);
    double best = INFINITY, free = INFINITY;
    int64_t least = INT64_MAX;
    for_each_combination(graph, [&](const std::vector<int32_t>& ways) {
      const Tradeoff sum = price(graph, ways);
      if (!std::isfinite(sum.time_s)) return;
      free = std::min(free, sum.time_s), least = std::min(least, sum.bytes);
      if (sum.bytes <= budget) best = std::min(best, sum.time_s);
    });
    const auto found = best_decision(graph, budget);
    REQUIRE(found.ok() == std::isfinite(best));
    if (!found.ok()) {
      if (std::isinf(free)) {
        CHECK(found.status().code() == StatusCode::kInvalidArgument);
      } else {
        CHECK(found.status().code() == StatusCode::kOutOfMemory);
        CHECK(std::string(found.status().message()).ends_with(std::to_string(least)));
        CHECK(best_decision(graph, least).ok());
      }
      continue;
    }
    ++feasible;
    limited += best > free;
    CHECK(found->proved);
    CHECK(found->bound_s == best);
    const Tradeoff again = price(graph, found->decision.ways);
    CHECK(again.time_s == best);
    CHECK(again.time_s == found->decision.time_s);
    CHECK(again.bytes == found->decision.bytes);
    CHECK(again.bytes <= budget);
  }
  CHECK(feasible > 300);
  CHECK(limited > 50);
}

// Elimination and CBC agree on graphs of 20 to 60 nodes, with and without a row for memory.
TEST_CASE("on graphs of 20 to 60 operations the best decision is that of an integer program") {
  if (!cbc_is_installed()) {
    test::skip("no `cbc` here (package coinor-cbc; ./dev test installs it)");
    return;
  }
  std::mt19937 random(2);
  // Two budgets a graph that has a solution.
  const int wanted_with_memory = test::full() ? 44 : 12;
  int with_memory = 0, infeasible = 0;
  double worst_relaxation = 0;
  for (int trial = 0; trial < 60 && with_memory < wanted_with_memory; ++trial) {
    const int nodes = 20 + (trial % 3) * 20;
    const DecisionGraph graph = random_decisions(random, nodes, 5, nodes / 4, 3);
    const auto free = best_decision(graph, INT64_MAX);
    const IntegerProgram wanted = solve_with_cbc(graph, INT64_MAX);
    REQUIRE(free.ok() == wanted.feasible);
    if (!free.ok()) {
      ++infeasible;
      continue;
    }
    CHECK(free->decision.time_s == doctest::Approx(wanted.time_s).epsilon(1e-9));
    // Budgets between what the fastest takes and what the smallest does; one below that.
    const auto refused = best_decision(graph, 0);
    const int64_t most = free->decision.bytes;
    int64_t least = 0;
    if (!refused.ok()) {
      const std::string said(refused.status().message());
      least = std::stoll(said.substr(said.rfind(' ')));
    }
    for (const int percent : {20, 60}) {
      const int64_t budget = least + (most - least) * percent / 100;
      const auto found = best_decision(graph, budget);
      const IntegerProgram limited = solve_with_cbc(graph, budget);
      REQUIRE(found.ok());
      REQUIRE(limited.feasible);
      ++with_memory;
      CHECK(found->proved);
      CHECK(found->decision.bytes <= budget);
      CHECK(price(graph, found->decision.ways).time_s == found->decision.time_s);
      // CBC's answers are whole up to 1e-6.
      CHECK(found->decision.time_s == doctest::Approx(limited.time_s).epsilon(1e-6));
      worst_relaxation = std::max(worst_relaxation, 1 - limited.relaxed_s / limited.time_s);
    }
    if (trial < 3) CHECK_FALSE(solve_with_cbc(graph, least - 1).feasible);
  }
  MESSAGE(with_memory, " with a budget; the linear relaxation is off by at most ", 100 * worst_relaxation,
          " %");
  CHECK(with_memory == wanted_with_memory);
  if (test::full()) CHECK(infeasible > 0);
}

TEST_CASE("thinned frontiers are still within the budget, and say how far off they may be") {
  std::mt19937 random(3);
  int thinned = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const DecisionGraph graph = random_decisions(random, 30, 6, 6, 3);
    const auto free = best_decision(graph, INT64_MAX);
    if (!free.ok()) continue;
    const int64_t budget = free->decision.bytes * 7 / 10;
    const auto exact = best_decision(graph, budget), rough = best_decision(graph, budget, 2);
    REQUIRE(exact.ok() == rough.ok());
    if (!exact.ok()) continue;
    CHECK(exact->proved);
    CHECK(rough->decision.bytes <= budget);
    CHECK(rough->bound_s <= exact->decision.time_s);
    CHECK(rough->decision.time_s >= exact->decision.time_s);
    thinned += !rough->proved;
  }
  CHECK(thinned > 5);
}
