// Sets of single activations to recompute, chosen on lowered programs.
#include "parallel/planner/recompute_set.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/base/text.h"
#include "parallel/planner/planner.h"
#include "parallel/pricing/simulator.h"
#include "parallel/strategy/refine_plan.h"
#include "tests/fake_cluster.h"
#include "tests/full.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

constexpr int64_t kBatch = 4, kTokens = 32;

Cluster cluster_of(int devices) { return fake_cluster(devices, {5e9, 5e-6}, 1e11); }

struct Lowered {
  double seconds = 0;
  int64_t bytes = 0;
};

Lowered lowered(const Graph& step, const Plan& plan, int devices) {
  const EntrySpec entry{"step", &step, &plan};
  const Program program = lower(std::span(&entry, 1), FakeCatalog()).value();
  Lowered it{simulate(program, "step", cluster_of(devices)).value().seconds(), 0};
  for (const RankProgram& rank : program.ranks) it.bytes = std::max(it.bytes, rank.arena_bytes);
  return it;
}

Result<PlanResult> planned(const Graph& step, int devices, std::string_view strategy, int64_t limit) {
  PlanOptions options;
  options.global_batch = kBatch;
  options.symbols = {{"T", kTokens}};
  options.parallel = strategy;
  options.memory_limit = limit;
  options.advise = false;
  return make_plan(step, cluster_of(devices), FakeCatalog(), options);
}

}  // namespace

TEST_CASE(
    "near the memory limit only what is needed is recomputed, and the step is never slower than with "
    "recompute=full") {
  std::vector<const char*> models = {"llama:L=3,C=32,H=4,KV=2,F=64,V=64,T=32",
                                     "moe:L=2,C=32,H=4,KV=2,F=48,E=2,K=1,V=64,T=32"};
  if (test::full()) {
    models.push_back("gpt2:L=3,C=32,H=4,V=64,T=32");
    models.push_back("encoder:L=3,C=32,H=4,V=64,T=32");
  }
  for (const char* model : models) {
    const Graph step = training_step(model).value();
    for (const auto& [words, devices] : {std::pair{"dp=1,tp=1", 1},
                                         {"dp=2,tp=1,zero=1", 2},
                                         {"tp=2,sp,dp=1,zero=0", 2},
                                         {"pp=2:1f1b,dp=1,tp=1,mb=1", 2}}) {
      CAPTURE(format("{} {}", model, words));
      const auto plan = [&](const char* more) {
        return plan_of(step, format("{},{}", words, more), kBatch, kTokens).value();
      };
      const Lowered none = lowered(step, plan("recompute=none"), devices);
      const Lowered full = lowered(step, plan("recompute=full"), devices);
      REQUIRE(full.bytes < none.bytes);
      double last = INFINITY;
      for (const double share : {0.0, 0.3, 0.6, 0.9, 0.99}) {
        const auto limit =
            full.bytes + static_cast<int64_t>(share * static_cast<double>(none.bytes - full.bytes));
        const auto found = planned(step, devices, format("{},recompute=some", words), limit);
        REQUIRE_MESSAGE(found.ok(), found.status().to_string());
        const Lowered it = lowered(step, found->plan, devices);
        CHECK(it.bytes == std::ranges::max(found->plan.estimate.arena_bytes));
        CHECK(it.bytes <= limit);
        CHECK(it.seconds == found->plan.estimate.step_time_s);
        CHECK(it.seconds <= full.seconds * (1 + 1e-9));
        CHECK(it.seconds <= last * 1.01);  // the search's time estimates are off by up to 1%
        last = it.seconds;
        CHECK_FALSE(found->plan.recompute.empty());
        if (share == 0.99) CHECK(found->plan.recompute.size() < block_activations(step).size() / 2);
        if (share == 0.9) CHECK(it.seconds - none.seconds <= 0.35 * (full.seconds - none.seconds));
      }
    }
  }
}

TEST_CASE("a buffer that its gradient later overwrites can still be read to recompute an activation") {
  // The gradient of gelu overwrites gelu's input in place, so recomputing gelu reruns no matmul.
  const Graph step = training_step("gpt2:L=3,C=32,H=4,V=64,T=32").value();
  const Plan none = plan_of(step, "dp=1,tp=1", kBatch, kTokens).value();
  const Plan full = plan_of(step, "dp=1,tp=1,recompute=full", kBatch, kTokens).value();
  const int64_t most = lowered(step, none, 1).bytes, least = lowered(step, full, 1).bytes;
  const auto found = planned(step, 1, "dp=1,tp=1,recompute=some", most - (most - least) / 3);
  REQUIRE_MESSAGE(found.ok(), found.status().to_string());
  CHECK(std::ranges::any_of(found->plan.recompute, [&](TensorId id) {
    return step.node(step.tensor(id).producer).op->name == "gelu";
  }));
}

TEST_CASE("the set found is as good as the best of all subsets of scopes") {
  const Graph step = training_step("gpt2:L=2,C=32,H=4,V=64,T=32").value();
  Plan plan = plan_of(step, "dp=1,tp=1", kBatch, kTokens).value();
  // The activations inside blocks, in id order.
  std::vector<TensorId> inside = block_activations(step);
  const Lowered none = lowered(step, plan, 1);
  Plan all = plan;
  all.recompute = inside;
  const Lowered full = lowered(step, all, 1);
  // Groups by scope, so that enumeration is short: a subset of the scopes of both blocks.
  std::vector<std::pair<std::string, std::vector<TensorId>>> groups;
  for (const TensorId id : inside) {
    const std::string scope = step.node(step.tensor(id).producer).scope;
    if (groups.empty() || groups.back().first != scope) groups.push_back({scope, {}});
    groups.back().second.push_back(id);
  }
  REQUIRE(groups.size() >= 4);
  REQUIRE(groups.size() <= 12);
  std::vector<Lowered> subsets;
  for (size_t set = 0; set < size_t{1} << groups.size(); ++set) {
    plan.recompute.clear();
    for (size_t g = 0; g < groups.size(); ++g)
      if ((set >> g & 1) != 0)
        plan.recompute.insert(plan.recompute.end(), groups[g].second.begin(), groups[g].second.end());
    std::ranges::sort(plan.recompute);
    subsets.push_back(lowered(step, plan, 1));
  }
  int better = 0;
  for (const double share : {0.0, 0.25, 0.5, 0.75, 0.95}) {
    const auto limit =
        full.bytes + static_cast<int64_t>(share * static_cast<double>(none.bytes - full.bytes));
    double best = INFINITY;
    for (const Lowered& it : subsets)
      if (it.bytes <= limit) best = std::min(best, it.seconds);
    const auto found = planned(step, 1, "dp=1,tp=1,recompute=some", limit);
    REQUIRE(found.ok());
    CAPTURE(share);
    CHECK(found->plan.estimate.step_time_s <= best * (1 + 1e-9));
    better += found->plan.estimate.step_time_s < best * (1 - 1e-9);
  }
  MESSAGE(subsets.size(), " subsets of whole scopes; single activations do better at ", better,
          " of 5 limits");
  CHECK(better > 0);
}

TEST_CASE(
    "pinned activations are never recomputed, and recompute=auto becomes recompute=some where that "
    "suffices") {
  const Graph step = training_step("gpt2:L=2,C=32,H=4,V=64,T=32").value();
  const Plan plain = plan_of(step, "dp=1,tp=1", kBatch, kTokens).value();
  const Lowered none = lowered(step, plain, 1);
  const auto automatic = planned(step, 1, "dp=1,tp=1,recompute=auto", none.bytes - 1);
  REQUIRE(automatic.ok());
  CHECK(automatic->plan.strategy.find("recompute=some") != std::string::npos);
  const auto enough = planned(step, 1, "dp=1,tp=1,recompute=auto", none.bytes);
  REQUIRE(enough.ok());
  CHECK(enough->plan.recompute.empty());
  CHECK(enough->plan.strategy == "single");

  PlanOptions options;
  options.global_batch = kBatch;
  options.symbols = {{"T", kTokens}};
  options.parallel = "dp=1,tp=1,recompute=some";
  options.memory_limit = none.bytes * 9 / 10;
  options.pins.keep = {"block.0"};
  const auto pinned = make_plan(step, cluster_of(1), FakeCatalog(), options);
  REQUIRE_MESSAGE(pinned.ok(), pinned.status().to_string());
  CHECK_FALSE(pinned->plan.recompute.empty());
  for (const TensorId id : pinned->plan.recompute)
    CHECK_FALSE(step.node(step.tensor(id).producer).scope.starts_with("block.0"));
}
