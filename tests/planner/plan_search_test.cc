// make_plan on lowered programs: bounds hold, what it finds is the best of its space, idle devices, memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>

#include "graph/base/text.h"
#include "graph/device_profile.h"
#include "parallel/planner/plan_bound.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"
#include "parallel/pricing/simulator.h"
#include "parallel/strategy/refine_plan.h"
#include "tests/fake_cluster.h"
#include "tests/full.h"
#include "tests/parallel/tried_strategy.h"

using namespace tessera;

namespace {

constexpr int64_t kBatch = 4, kTokens = 32;

// Two cores as a calibration finds them: help from the other one costs a small kernel more than it saves, and
// ranks lose to each other, the more with more of them than cores.
std::shared_ptr<const DeviceProfile> calibrated() {
  auto profile = std::make_shared<DeviceProfile>();
  profile->device = "fake";
  profile->cores = 2;
  profile->contention = 1.2;
  profile->oversubscription = 1.5;
  profile->kernels.push_back({"", "", DType::kF32, {"bytes"}, {{1e3, 1e5}}, {3e-5, 5e-5}, {4e-6, 9e-5}});
  return profile;
}

enum Sharing { kNothing, kCores, kCalibratedCores };  // two cores

Cluster cluster_of(int devices, Sharing sharing, double link_bytes_per_s = 5e9) {
  Cluster cluster = fake_cluster(devices, {link_bytes_per_s, 5e-6}, 1e11);
  cluster.shared_cores = sharing == kNothing ? 0 : 2;
  if (sharing == kCalibratedCores) cluster.profile = calibrated();
  return cluster;
}

PlanOptions options_of(std::string_view parallel = {}, int64_t limit = 0) {
  PlanOptions options;
  options.global_batch = kBatch;
  options.symbols = {{"T", kTokens}};
  options.parallel = parallel;
  options.memory_limit = limit;
  return options;
}

Graph gpt2() { return training_step("gpt2:L=2,C=32,H=4,V=64,T=32").value(); }

Graph step_of(std::string_view model, bool mixed) {
  return training_step(model, true, 0, mixed ? DType::kBF16 : DType::kF32).value();
}

}  // namespace

TEST_CASE("no strategy of the space is simulated faster than its bound, or smaller than its bytes") {
  constexpr std::string_view kDense = "gpt2:L=2,C=32,H=4,V=64,T=32",
                             kExperts = "moe:L=1,C=32,H=4,KV=2,F=48,E=2,K=1,V=64,T=32";
  const std::vector<Graph> steps = {step_of(kDense, false), step_of(kExperts, false), step_of(kDense, true),
                                    step_of(kExperts, true)};
  size_t looked_at = 0, uneven = 0;
  for (const Graph& step : steps)
    for (const auto& [batch, devices] : {std::pair<int64_t, int>{kBatch, 4}, {5, 3}, {7, 6}})
      for (const Sharing sharing : {kNothing, kCores, kCalibratedCores}) {
        const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", kTokens}};
        const Graph bound_graph = step.bind_partly(symbols).value();
        const SpaceOfGraph space = space_of(step, batch, kTokens);
        const Cluster cluster = cluster_of(devices, sharing);
        CAPTURE(sharing);
        const FakeCatalog catalog;
        PlanBounds bounds(bound_graph, space, cluster, catalog);
        const std::vector<StrategySpec> roots = plan_roots(space, {}, false, devices);
        for (size_t i = 0; i < roots.size(); i += test::full() ? 17 : 37) {  // a share, of every kind
          const Tried it = tried(step, roots[i], batch, kTokens, cluster);
          if (!it.admitted) continue;
          CAPTURE(to_text(roots[i]));
          // Simulated in whole nanoseconds, instruction by instruction.
          CHECK(bounds.seconds(roots[i]) <= it.seconds * (1 + 1e-4));
          CHECK(bounds.seconds(roots[i]) > 0.1 * it.seconds);  // and says something
          CHECK(bounds.bytes(roots[i]) <= it.bytes);
          ++looked_at;
          uneven += batch % roots[i].data() != 0;
        }
      }
  CHECK(uneven > 10);
  CHECK(looked_at > 40);
}

TEST_CASE("savings take the time and leave the bytes that bounds say, sets of single activations too") {
  size_t looked_at = 0, binding = 0, exact = 0, moved = 0, turn = 0;
  // Each model in one of them, where not all are looked at.
  constexpr Sharing sharings[] = {kNothing, kCores, kCalibratedCores};
  const size_t share = test::full() ? 1 : 4;
  for (const auto& [model, mixed] : {std::pair("gpt2:L=2,C=32,H=4,V=64,T=32", false),
                                     {"llama:L=2,C=32,H=4,KV=2,F=64,V=64,T=32", false},
                                     {"llama:L=2,C=32,H=4,KV=2,F=64,V=64,T=32", true},
                                     {"moe:L=1,C=32,H=4,KV=2,F=48,E=2,K=1,V=64,T=32", false}}) {
    for (const Sharing sharing : {kNothing, kCores, kCalibratedCores}) {
      if (!test::full() && sharing != sharings[turn % 3]) continue;
      const Graph step = step_of(model, mixed);
      const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", kTokens}};
      const Graph bound_graph = step.bind_partly(symbols).value();
      const SpaceOfGraph space = space_of(step, kBatch, kTokens);
      Cluster cluster = cluster_of(2, sharing);
      if (sharing == kNothing) cluster.host_link = {4e10, 1e-8};  // what leaves then costs next to nothing
      const FakeCatalog catalog;
      PlanBounds bounds(bound_graph, space, cluster, catalog);
      std::mt19937 random(5);
      for (const char* words :
           {"dp=1", "dp=1,mb=1", "dp=2", "dp=2,zero=1,mb=1", "dp=2,zero=3", "tp=2", "tp=2,sp",
            "pp=2:1f1b,mb=1", "pp=2:gpipe,mb=2", "cp=ring:2", "cp=ulysses:2", "pp=2:zb-h1,mb=1", "ep=2"}) {
        for (const char* more : {"", ",recompute=full", ",offload=activations", ",offload=optimizer",
                                 ",recompute=full,offload=activations"}) {
          const StrategySpec spec = parse_parallel(std::string(words) + more)->spec;
          const Tried it = tried(step, spec, kBatch, kTokens, cluster);
          if (!it.admitted) continue;
          CAPTURE(to_text(spec));
          CHECK(bounds.seconds(spec) <= it.seconds * (1 + 1e-4));
          CHECK(bounds.bytes(spec) <= it.bytes);
          CHECK(bounds.bytes(spec) >= bounds.persistent_bytes(spec));
          ++looked_at;
        }
        StrategySpec spec = parse_parallel(words)->spec;
        auto plan = apply_strategy(bound_graph, spec, kBatch);
        if (!plan.ok()) continue;
        plan->symbols = symbols;
        const auto all_leave = apply_strategy(bound_graph, with_moves(spec), kBatch);
        spec.recompute = RecomputeForm::kSome;
        for (int trial = 0; trial < 6; ++trial) {
          plan->recompute.clear(), plan->offload.clear();
          for (const TensorId id : block_activations(step))
            if (static_cast<int>(random() % 6) < trial) plan->recompute.push_back(id);
          if (all_leave.ok() && spec.form == TensorForm::k1d) {
            for (const OffloadedTensor& it : all_leave->offload)
              if (random() % 3 == 0 && !std::ranges::binary_search(plan->recompute, it.tensor))
                plan->offload.push_back(it);
            plan->prefetch = 1 + static_cast<int32_t>(random() % 4);
            const Tried it = tried(step, *plan, cluster);
            CAPTURE(plan->offload.size());
            CHECK(bounds.seconds_within(with_moves(spec), it.bytes) <= it.seconds * (1 + 1e-4));
            moved += bounds.seconds_within(with_moves(spec), it.bytes * 8 / 10) >
                     bounds.seconds(spec) * (1 + 1e-6);
            plan->offload.clear(), plan->prefetch = 1;
          }
          const Tried it = tried(step, *plan, cluster);
          CAPTURE(to_text(spec));
          CAPTURE(plan->recompute.size());
          CHECK(bounds.seconds_within(spec, it.bytes) <= it.seconds * (1 + 1e-4));
          binding += bounds.seconds_within(spec, it.bytes * 8 / 10) > bounds.seconds(spec) * (1 + 1e-6);
          ++exact;
        }
      }
    }
    ++turn;
  }
  MESSAGE(looked_at, " strategies, ", exact, " sets; a limit a fifth below binds in ", binding, ", in ",
          moved, " where some leave");
  CHECK(looked_at > 200 / share);
  CHECK(binding > 100 / share);
  CHECK(moved > 10 / share);
}

TEST_CASE("no pipeline is smaller than its bytes say, nor faster with a set of activations that fits") {
  size_t looked_at = 0, close = 0;
  std::set<ScheduleKind> schedules;
  for (const auto& [model, mixed] : {std::pair("gpt2:L=4,C=32,H=4,V=64,T=32", false),
                                     {"gpt2:L=4,C=32,H=4,V=64,T=32", true},
                                     {"llama:L=5,C=32,H=4,KV=2,F=64,V=64,T=32", false}}) {
    const Graph step = step_of(model, mixed);
    const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", kTokens}};
    const Graph bound_graph = step.bind_partly(symbols).value();
    constexpr int64_t kSequences = 8;
    const SpaceOfGraph space = space_of(step, kSequences, kTokens);
    const Cluster cluster = cluster_of(4, kCalibratedCores);
    const FakeCatalog catalog;
    PlanBounds bounds(bound_graph, space, cluster, catalog);
    std::mt19937 random(3);
    size_t seen = 0;
    for (StrategySpec spec : plan_roots(space, {}, false, 4)) {
      if (spec.pp == 1 || seen++ % (test::full() ? 7 : 14) != 0) continue;
      if (random() % 4 == 0) spec.offload.optimizer = Tier::kHost;
      auto plan = apply_strategy(bound_graph, spec, kSequences);
      if (!plan.ok()) continue;
      plan->symbols = symbols;
      CAPTURE(to_text(spec));
      const Tried whole = tried(step, *plan, cluster);
      if (!whole.admitted) continue;
      CHECK(bounds.bytes(spec) <= whole.bytes);
      CHECK(bounds.seconds(spec) <= whole.seconds * (1 + 1e-4));
      close += 2 * bounds.bytes(spec) > whole.bytes;
      schedules.insert(spec.schedule);
      for (const TensorId id : block_activations(step))
        if (random() % 2 == 0) plan->recompute.push_back(id);
      const Tried fewer = tried(step, *plan, cluster);
      CHECK(bounds.seconds_within(spec, fewer.bytes) <= fewer.seconds * (1 + 1e-4));
      ++looked_at;
    }
  }
  MESSAGE(looked_at, " pipelines, more than half of the bytes seen in ", close);
  CHECK(schedules.size() == 6);
  CHECK(close * 3 > looked_at);
}

TEST_CASE("nothing in the whole space that fits is faster than the plan by more than its gap") {
  const Graph step = gpt2();
  for (const Sharing sharing : {kNothing, kCores, kCalibratedCores}) {
    const Cluster cluster = cluster_of(2, sharing);
    const SpaceOfGraph space = space_of(step, kBatch, kTokens, offload_tier(cluster));
    std::vector<SpaceNode> nodes;
    for (const StrategySpec& spec : plan_roots(space, {}, false, 2))
      nodes.push_back({spec, SavingStep::kNone});
    const size_t roots = nodes.size();
    // The savings of a few roots: all of them would be thousands.
    for (size_t i = 0; i < roots; i += 9)
      for (const SpaceNode& below : savings_of(nodes[i], space, {}, false)) nodes.push_back(below);
    std::vector<Tried> all;
    for (const SpaceNode& node : nodes) all.push_back(tried(step, node.spec, kBatch, kTokens, cluster));
    int64_t largest = 0;
    for (const Tried& it : all) largest = std::max(largest, it.bytes);
    for (const double share : {1.0, 0.5, 0.3}) {
      const auto limit = static_cast<int64_t>(static_cast<double>(largest) * share);
      const auto planned = make_plan(step, cluster, FakeCatalog(), options_of("", limit));
      double best = INFINITY;
      for (const Tried& it : all)
        if (it.admitted && it.bytes <= limit) best = std::min(best, it.seconds);
      REQUIRE_MESSAGE(planned.ok(), planned.status().to_string());
      CAPTURE(planned->plan.strategy);
      const double seconds = planned->plan.estimate.step_time_s, gap = planned->search.gap;
      CHECK(gap >= 0);
      CHECK(planned->plan.estimate.gap == gap);
      CHECK(best >= seconds * (1 - gap) * (1 - 1e-9));
      CHECK(planned->search.bound_s == doctest::Approx(seconds * (1 - gap)));
      for (const int64_t bytes : planned->plan.estimate.arena_bytes) CHECK(bytes <= limit);
    }
  }
}

TEST_CASE("devices behind slow links stay idle; fast ones are all used") {
  const Graph step = gpt2();
  const auto slow = make_plan(step, cluster_of(4, kNothing, 1e5), FakeCatalog(), options_of());
  REQUIRE(slow.ok());
  CHECK(slow->plan.strategy == "single");
  CHECK(slow->plan.estimate.arena_bytes[0] > 0);
  CHECK(slow->plan.estimate.arena_bytes[3] == 0);
  CHECK(slow->search.closed_by_bound > 0);

  Cluster cluster = cluster_of(4, kNothing, 1e12);
  cluster.link.latency_s = 1e-8;
  const auto fast = make_plan(step, cluster, FakeCatalog(), options_of());
  REQUIRE(fast.ok());
  for (const int64_t bytes : fast->plan.estimate.arena_bytes) CHECK(bytes > 0);
  // Words name all devices that they use: none is left idle.
  const auto worded = make_plan(step, cluster_of(4, kNothing, 1e5), FakeCatalog(), options_of("dp=2"));
  REQUIRE(worded.ok());
  CHECK(worded->plan.strategy == "dp=2,tp=2");
}

TEST_CASE("roots are distinct, and no saving is reached in two ways") {
  SpaceOfGraph space;
  space.trains = space.may_cut = true;
  space.batch = 8;
  space.tokens = 128;
  space.experts = 4;
  space.blocks = 8;
  const std::vector<StrategySpec> roots = plan_roots(space, {}, false, 8);
  std::set<std::string> names;
  std::set<std::string_view> kinds;
  for (const StrategySpec& spec : roots) {
    CHECK(names.insert(to_text(spec)).second);
    CHECK(spec.devices() <= 8);
    for (const std::string_view kind :
         {"tp=2d", "tp=2.5d", "tp=3d", "cp=ring", "cp=ulysses", "cp=gather", "ep=", "pp=2:gpipe",
          "pp=4:interleaved:2", "zb-v", "keep", "zero=3", "sp"})
      if (to_text(spec).find(kind) != std::string::npos) kinds.insert(kind);
  }
  CHECK(kinds.size() == 13);
  std::vector<SpaceNode> nodes = {{parse_parallel("dp=4,zero=3")->spec, SavingStep::kNone}};
  std::set<std::string> below;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const SpaceNode& node : savings_of(nodes[i], space, {}, false)) {
      CHECK(below.insert(to_text(node.spec)).second);
      nodes.push_back(node);
    }
  CHECK(below.size() > 20);
}

TEST_CASE("ranks taken to be alike are simulated as the real ones are") {
  const Graph step = gpt2();
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", kTokens}};
  const Graph bound = step.bind_partly(symbols).value();
  for (const std::string_view words : {"dp=4", "dp=2,tp=2,sp,zero=1", "tp=2d:2x2", "cp=ring:2",
                                       "cp=ulysses:2,dp=2", "pp=2:1f1b,dp=2,mb=1"}) {
    CAPTURE(words);
    Plan plan = apply_strategy(bound, parse_parallel(words)->spec, kBatch).value();
    plan.symbols = symbols;
    const EntrySpec entry{"step", &step, &plan};
    const Program real = lower(std::span(&entry, 1), FakeCatalog()).value();
    const auto alike = lower_representatives(entry, FakeCatalog());
    REQUIRE_MESSAGE(alike.ok(), alike.status().to_string());
    REQUIRE(alike->ranks.size() == real.ranks.size());
    for (size_t rank = 0; rank < real.ranks.size(); ++rank) {
      CHECK(alike->ranks[rank].arena_bytes ==
            doctest::Approx(static_cast<double>(real.ranks[rank].arena_bytes)).epsilon(0.02));
      REQUIRE(alike->ranks[rank].groups.size() == real.ranks[rank].groups.size());
      for (size_t g = 0; g < real.ranks[rank].groups.size(); ++g) {
        CHECK(alike->ranks[rank].groups[g].ranks == real.ranks[rank].groups[g].ranks);
        CHECK(alike->ranks[rank].groups[g].position == real.ranks[rank].groups[g].position);
      }
    }
    for (const Sharing sharing : {kNothing, kCores, kCalibratedCores}) {
      const double exact = simulate(real, "step", cluster_of(4, sharing))->seconds();
      // All ranks except the first contribute zeros: a few small copies.
      CHECK(simulate(*alike, "step", cluster_of(4, sharing))->seconds() ==
            doctest::Approx(exact).epsilon(0.02));
    }
  }
}
