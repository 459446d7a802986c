// Sets of offloaded activations, combined with recomputed ones.
#include "parallel/planner/recompute_search.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/base/text.h"
#include "parallel/planner/planner.h"
#include "parallel/pricing/simulator.h"
#include "tests/fake_cluster.h"
#include "tests/full.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

struct Size {
  int64_t batch = 4, tokens = 32;
};

Cluster cluster_of(int devices, double host_bytes_per_s) {
  Cluster cluster = fake_cluster(devices, {5e9, 5e-6}, 1e11);
  cluster.host_link = {host_bytes_per_s, 1e-8};
  return cluster;
}

struct Lowered {
  double seconds = 0;
  int64_t bytes = 0;
};

Lowered lowered(const Graph& step, const Plan& plan, const Cluster& cluster) {
  const EntrySpec entry{"step", &step, &plan};
  const Program program = lower(std::span(&entry, 1), FakeCatalog()).value();
  Lowered it{simulate(program, "step", cluster).value().seconds(), 0};
  for (const RankProgram& rank : program.ranks) it.bytes = std::max(it.bytes, rank.arena_bytes);
  return it;
}

Result<PlanResult> planned(const Graph& step, const Cluster& cluster, std::string_view words, int64_t limit,
                           Size size = {}) {
  PlanOptions options;
  options.global_batch = size.batch;
  options.symbols = {{"T", size.tokens}};
  options.parallel = words;
  options.memory_limit = limit;
  options.advise = false;
  return make_plan(step, cluster, FakeCatalog(), options);
}

Lowered of_words(const Graph& step, const Cluster& cluster, const std::string& words, Size size = {}) {
  return lowered(step, plan_of(step, words, size.batch, size.tokens).value(), cluster);
}

}  // namespace

TEST_CASE("what copies have time for leaves, the rest is computed again, and the program is as foretold") {
  int faster = 0, both = 0;
  for (const char* model : {"gpt2:L=4,C=32,H=4,V=64,T=32", "llama:L=4,C=32,H=4,KV=2,F=64,V=64,T=32"}) {
    const Graph step = training_step(model).value();
    for (const auto& [words, devices] : {std::pair{"dp=1,tp=1", 1},
                                         {"dp=2,tp=1,zero=1", 2},
                                         {"tp=2,sp,dp=1,zero=0", 2},
                                         {"pp=2:1f1b,dp=1,tp=1,mb=1", 2}}) {
      const Cluster cluster = cluster_of(devices, 4e10);
      const Lowered none = of_words(step, cluster, words),
                    full = of_words(step, cluster, format("{},recompute=full", words));
      for (const double share : test::full() ? std::vector{0.3, 0.6, 0.9} : std::vector{0.6}) {
        CAPTURE(format("{} {} {}", model, words, share));
        const auto limit =
            full.bytes + static_cast<int64_t>(share * static_cast<double>(none.bytes - full.bytes));
        const auto again = planned(step, cluster, format("{},recompute=some", words), limit);
        const auto moved =
            planned(step, cluster, format("{},recompute=some,offload=activations@host", words), limit);
        REQUIRE_MESSAGE(again.ok(), again.status().to_string());
        REQUIRE_MESSAGE(moved.ok(), moved.status().to_string());
        const Lowered it = lowered(step, moved->plan, cluster);
        CHECK(it.bytes == std::ranges::max(moved->plan.estimate.arena_bytes));
        CHECK(it.bytes <= limit);
        CHECK(it.seconds == moved->plan.estimate.step_time_s);
        CHECK(it.seconds <= again->plan.estimate.step_time_s);
        for (const OffloadedTensor& left : moved->plan.offload)
          CHECK_FALSE(std::ranges::binary_search(moved->plan.recompute, left.tensor));
        faster += it.seconds < again->plan.estimate.step_time_s * (1 - 1e-6);
        both += !moved->plan.offload.empty() && !moved->plan.recompute.empty();
      }
    }
  }
  MESSAGE("faster than by computing again alone at ", faster, " limits, by both means at ", both);
  CHECK(faster >= (test::full() ? 8 : 3));
  CHECK(both >= (test::full() ? 4 : 2));
}

TEST_CASE("a copy issued early enough, from bytes that nothing else reuses, takes no time") {
  const Graph step = training_step("gpt2:L=4,C=32,H=4,V=64,T=512").value();
  const Cluster cluster = cluster_of(1, 1e8);
  constexpr Size size = {4, 512};  // small copies are issued among the kernels
  Plan plan = plan_of(step, "dp=1,tp=1", size.batch, size.tokens).value();
  const double kept_s = lowered(step, plan, cluster).seconds;
  // The residuals of the second block: sums that forward may leave in the place of what they are added to.
  const Plan all_leave = plan_of(step, "dp=1,tp=1,offload=activations", size.batch, size.tokens).value();
  for (const OffloadedTensor& it : all_leave.offload) {
    const Node& maker = step.node(step.tensor(it.tensor).producer);
    if (maker.op->name == "add" && maker.scope.starts_with("block.1")) plan.offload.push_back(it);
  }
  REQUIRE_FALSE(plan.offload.empty());
  const double at_once_s = lowered(step, plan, cluster).seconds;
  plan.prefetch = 64;
  const double early_s = lowered(step, plan, cluster).seconds;
  MESSAGE("kept ", kept_s, " s, copied at once ", at_once_s, ", early ", early_s);
  CHECK(early_s <= kept_s * (1 + 1e-6));
  CHECK(at_once_s > kept_s * (1 + 1e-3));
}

TEST_CASE("over a slow link nothing leaves") {
  const Graph step = training_step("gpt2:L=4,C=32,H=4,V=64,T=32").value();
  const Cluster cluster = cluster_of(1, 1e6);
  const Lowered none = of_words(step, cluster, "dp=1,tp=1");
  const auto found =
      planned(step, cluster, "dp=1,tp=1,recompute=some,offload=activations@host", none.bytes * 4 / 5);
  REQUIRE_MESSAGE(found.ok(), found.status().to_string());
  CHECK(found->plan.offload.empty());
  CHECK(found->plan.strategy == "recompute=some");
  CHECK(found->plan.prefetch == 1);
  CHECK_FALSE(found->plan.recompute.empty());
}

TEST_CASE("the search without words looks at both, and no bound of its is above what it finds") {
  const Graph step = training_step("gpt2:L=4,C=32,H=4,V=64,T=512").value();
  const Cluster cluster = cluster_of(1, 2e9);
  constexpr Size kLong = {1, 512};  // nothing to cut, and little state to move
  const Lowered none = of_words(step, cluster, "dp=1,tp=1", kLong);
  const auto found = planned(step, cluster, "", none.bytes * 7 / 10, kLong);
  REQUIRE_MESSAGE(found.ok(), found.status().to_string());
  CAPTURE(found->plan.strategy);
  const auto seconds_of = [&](std::string_view strategy) {
    for (const Candidate& it : found->candidates)
      if (it.strategy == strategy && it.rejected.empty()) return it.step_time_s;
    return double{INFINITY};
  };
  CHECK(seconds_of("recompute=some,offload=activations@host") < seconds_of("recompute=some"));
  CHECK(found->search.bound_s <= found->plan.estimate.step_time_s);
  CHECK(found->search.gap >= 0);
}
