// make_plan against enumeration, on random small models: experts, pipelines of every schedule (cuts that do
// not come out even, zero-bubble ones in a V), full recomputation, chunks and offload, at several limits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"
#include "tests/parallel/tried_strategy.h"

using namespace tessera;

namespace {

constexpr int64_t kBatch = 4, kTokens = 8;

}  // namespace

TEST_CASE(
    "experts, pipelines, offload of random small models: none that fits is faster than the plan's gap says") {
  std::mt19937 random(11);
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  std::set<std::string> kinds;
  size_t fitted = 0, limited = 0, nodes_tried = 0;
  for (int trial = 0; trial < 6; ++trial) {
    const int width = 16 * one_of({1, 2});
    const std::string model =
        trial % 2 == 0
            ? format("moe:L=1,C={},H=2,KV=2,F={},E={},K=1,V=48,T=8", width, one_of({24, 48}), one_of({2, 4}))
            : format("gpt2:L={},C={},H=2,V={},T=8", trial == 1 ? 3 : 4, width, one_of({48, 50}));
    CAPTURE(model);
    const Graph step = training_step(model).value();
    const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", kTokens}};
    Cluster cluster;
    cluster.kinds.push_back({"fake", int64_t{1} << 40, 1e9 * one_of({1, 10}), 1e10, 1e-6});
    cluster.devices.assign(2, 0);
    cluster.shared_cores = trial % 3 == 2 ? 2 : 0;
    cluster.link = {5e9, 1e-6 * one_of({1, 5})};
    const SpaceOfGraph space = space_of(step, kBatch, kTokens, offload_tier(cluster));
    std::vector<SpaceNode> nodes;
    for (const StrategySpec& spec : plan_roots(space, {}, false, 2))
      nodes.push_back({spec, SavingStep::kNone});
    const size_t roots = nodes.size();
    // Some roots have variants that save memory, and some of those further ones.
    for (size_t i = random() % 2; i < roots; i += 2)
      for (const SpaceNode& below : savings_of(nodes[i], space, {}, false)) {
        if (random() % 2 == 0) continue;
        nodes.push_back(below);
        for (const SpaceNode& last : savings_of(below, space, {}, false))
          if (random() % 8 == 0) nodes.push_back(last);
      }
    std::vector<Tried> all;
    int64_t largest = 0;
    for (const SpaceNode& node : nodes) {
      all.push_back(tried(step, node.spec, kBatch, kTokens, cluster));
      largest = std::max(largest, all.back().bytes);
      const std::string name = to_text(node.spec);
      for (const char* kind : {"ep=", "zb-v", "zb-h1", "offload=", "recompute=full", "zero=3", "chunks="})
        if (all.back().admitted && name.find(kind) != std::string::npos) kinds.insert(kind);
    }
    nodes_tried += nodes.size();
    double free = 0;
    for (const double share : {1.0, 0.6, 0.4}) {
      CAPTURE(share);
      PlanOptions options;
      options.global_batch = kBatch;
      options.symbols = symbols;
      options.memory_limit = static_cast<int64_t>(static_cast<double>(largest) * share);
      options.advise = false;
      const auto planned = make_plan(step, cluster, FakeCatalog(), options);
      double best = INFINITY;
      for (const Tried& it : all)
        if (it.admitted && it.bytes <= options.memory_limit) best = std::min(best, it.seconds);
      if (!planned.ok()) {
        CHECK(std::isinf(best));
        continue;
      }
      CAPTURE(planned->plan.strategy);
      CHECK(planned->search.gap >= 0);
      CHECK(best >= planned->search.bound_s * (1 - 1e-4));  // whole nanoseconds
      // The search ends after a number of lowerings, with as much open as its gap says.
      CHECK(planned->plan.estimate.step_time_s <= best * 1.1);
      for (const int64_t bytes : planned->plan.estimate.arena_bytes) CHECK(bytes <= options.memory_limit);
      if (share == 1.0) free = planned->plan.estimate.step_time_s;
      limited += planned->plan.estimate.step_time_s > free;
      ++fitted;
    }
  }
  MESSAGE(nodes_tried, " configurations, ", fitted, " plans, ", limited, " of them limited; among them ",
          join(std::vector<std::string>(kinds.begin(), kinds.end()), " "));
  CHECK(kinds.size() == 7);
  CHECK(fitted >= 14);
  CHECK(limited >= 4);
}
