// Refusals when nothing fits: the least memory named is needed, and the sufficient one suffices.
#include "parallel/planner/min_memory_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/planner/planner.h"
#include "tests/fake_cluster.h"
#include "tests/full.h"
#include "tests/parallel/tried_strategy.h"

using namespace tessera;

namespace {

constexpr int64_t kBatch = 4, kTokens = 32;

Cluster cluster_of(int devices) {
  Cluster cluster = fake_cluster(devices, {5e9, 5e-6}, 1e11);
  cluster.shared_cores = 2;
  return cluster;
}

std::vector<std::pair<std::string, int64_t>> symbols() { return {{"T", kTokens}}; }

PlanOptions options_of(int64_t limit) {
  PlanOptions options;
  options.global_batch = kBatch;
  options.symbols = symbols();
  options.memory_limit = limit;
  options.advise = false;
  return options;
}

constexpr const char* kModels[] = {"gpt2:L=2,C=32,H=4,V=64,T=32", "llama:L=2,C=32,H=4,KV=2,F=64,V=64,T=32",
                                   "moe:L=1,C=32,H=4,KV=2,F=48,E=2,K=1,V=64,T=32"};

}  // namespace

TEST_CASE("while its largest kernel runs a device holds what is said, whatever a strategy saves") {
  size_t looked_at = 0, close = 0;
  for (const char* model : kModels) {
    const Graph step = training_step(model).value();
    const Graph bound_graph = step.bind_partly(symbols()).value();
    const SpaceOfGraph space = space_of(step, kBatch, kTokens);
    const Cluster one = cluster_of(1);
    const FakeCatalog catalog;
    PlanBounds bounds(bound_graph, space, one, catalog);
    for (const char* words :
         {"dp=1", "dp=1,mb=1", "dp=2,zero=1", "dp=2,zero=3", "dp=2,zero=3,chunks=4", "dp=2,zero=3,keep",
          "tp=2", "tp=2,sp,mb=1", "tp=4", "pp=2:1f1b,mb=1", "pp=2:zb-h1,mb=1", "cp=ring:2", "cp=ulysses:2",
          "cp=gather:2", "ep=2", "ep=2,zero=3,chunks=2", "tp=2d:2x2", "tp=2d:2x2,chunks=2",
          "dp=2,tp=2,zero=3,chunks=4"})
      for (const char* more : {"", ",recompute=full", ",offload=params", ",offload=activations",
                               ",offload=params+grads+optimizer+activations",
                               ",recompute=full,offload=params+grads+optimizer+activations"}) {
        const StrategySpec spec = parse_parallel(std::string(words) + more)->spec;
        Cluster cluster = cluster_of(spec.devices());
        cluster.shared_cores = 0;  // what is on the host does not count
        const Tried it = tried(step, spec, kBatch, kTokens, cluster);
        if (!it.admitted) continue;
        CAPTURE(to_text(spec));
        CHECK(bounds.working_bytes(spec) <= it.bytes);
        ++looked_at;
        const bool away = spec.offload.params != Tier::kDevice && spec.offload.activations != Tier::kDevice;
        close += away && 4 * bounds.working_bytes(spec) > it.bytes;
      }
  }
  MESSAGE(looked_at, " strategies; a quarter of the bytes or more seen in ", close);
  CHECK(looked_at > 200);
  CHECK(close > 40);
}

TEST_CASE("the limit named where nothing fits does, with its plan, and a byte less does not") {
  const FakeCatalog catalog;
  for (const char* model : kModels) {
    const Graph step = training_step(model).value();
    for (const int devices : {1, 2}) {
      // Two devices take ten times as long to plan for as one.
      if (devices == 2 && model != kModels[0] && !test::full()) continue;
      CAPTURE(std::string(model));
      CAPTURE(devices);
      const Cluster cluster = cluster_of(devices);
      PlanRefusal refusal;
      const auto asked = [&](int64_t limit, bool any) {
        PlanOptions options = options_of(limit);
        options.any_that_fits = any;
        return make_plan(step, cluster, catalog, options, &refusal);
      };
      const auto none = asked(1, false);
      REQUIRE(!none.ok());
      CHECK(none.status().code() == StatusCode::kOutOfMemory);
      REQUIRE(refusal.smallest);
      CHECK(std::ranges::max(refusal.smallest->estimate.arena_bytes) <= refusal.least_limit);
      const int64_t limit = refusal.least_limit;
      for (const bool any : {false, true}) {
        const auto found = asked(limit, any);
        REQUIRE(found.ok());
        CHECK(std::ranges::max(found->plan.estimate.arena_bytes) <= limit);
        REQUIRE(!asked(limit - 1, any).ok());
        if (!any) CHECK(refusal.least_limit == limit);
      }
      CHECK(!asked(1, true).ok());
    }
  }
}
