// Joint search against the algorithms of other planners, each emulated by its own rules under the same
// prices: how much slower each is, as docs/planning.md has it. Their plans are among those that the joint
// search looks at, so that it loses to none says no more than that it drops no better plan than it returns.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "graph/base/text.h"
#include "parallel/analytic/step_search.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

struct Setting {
  const char* model;
  const char* cluster;
  int64_t batch;
  int64_t limit_gib;
};
constexpr Setting kSettings[] = {
    {"gpt2:L=24,C=2304,H=24,V=51200,T=2048", "dgx-a100-40gb:16", 128, 40},
    {"gpt2:L=24,C=2304,H=24,V=51200,T=2048", "dgx-a100-40gb:16", 128, 8},
    {"gpt2:L=36,C=4096,H=32,V=51200,T=2048", "dgx-a100-40gb:32", 256, 40},
    {"gpt2:L=36,C=4096,H=32,V=51200,T=2048", "pcie-rtx-4090:64", 256, 24},
    {"llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=8192", "dgx-h100:16", 32, 80},
    {"gpt2:L=48,C=8192,H=64,V=51200,T=2048", "dgx-a100-80gb:64", 256, 60},
    {"gpt2:L=96,C=12288,H=96,V=51200,T=2048", "dgx-a100-80gb:512", 1536, 80},
};

struct Problem {
  TransformerShape model;
  Cluster cluster;
  StepSearchOptions options;  // nothing pinned
  int32_t devices() const { return static_cast<int32_t>(cluster.devices.size()); }
};

double best(const Problem& problem, const StepSearchOptions& options) {
  const auto found = search_step(problem.model, problem.cluster, options);
  return found.ok() ? found->best.time.step_s : INFINITY;
}

// The whole space, once with operators sharded one by one and once with offload; both together would be no
// slower than either.
double joint_search(const Problem& problem) {
  StepSearchOptions shard = problem.options, offload = problem.options;
  shard.wide = shard.shard = true;
  offload.wide = offload.offload = true;
  return std::min(best(problem, shard), best(problem, offload));
}

// Megatron's rules: tensor parallelism fills the node, the fewest stages that fit follow, data parallelism
// takes the rest; everything is recomputed; the micro-batch is tuned.
double node_first(const Problem& problem) {
  StepSearchOptions pins = problem.options;
  pins.recompute = Recompute::kFull;
  pins.zero = 0, pins.virtual_stages = 1;
  pins.tp = std::min({problem.devices(), 8, static_cast<int32_t>(problem.model.H)});
  while (problem.model.H % *pins.tp != 0 || problem.model.KV % *pins.tp != 0) --*pins.tp;
  for (int32_t pp = 1; pp <= problem.devices() / *pins.tp; pp *= 2) {
    pins.pp = pp;
    if (const double time = best(problem, pins); std::isfinite(time)) return time;
  }
  return INFINITY;
}

// OSDP: data parallelism, operators sharded one by one, gathers in slices; nothing recomputed.
double operators_sharded(const Problem& problem) {
  StepSearchOptions pins = problem.options;
  pins.wide = pins.shard = true;
  pins.tp = 1, pins.pp = 1, pins.cp = 1, pins.ep = 1, pins.zero = 0;
  pins.recompute = Recompute::kNone;
  return best(problem, pins);
}

// Data parallelism alone, with or without everything sharded.
double data_parallel_only(const Problem& problem) {
  StepSearchOptions pins = problem.options;
  pins.tp = 1, pins.pp = 1;
  double time = INFINITY;
  for (const int32_t zero : {0, 3}) pins.zero = zero, time = std::min(time, best(problem, pins));
  return time;
}

// Colossal-Auto: first the sharding, as if memory had no end; then recomputation, to make it fit.
double one_after_the_other(const Problem& problem) {
  StepSearchOptions free = problem.options;
  free.pp = 1;
  free.memory_limit = int64_t{1} << 50;
  free.recompute = Recompute::kNone;
  const auto mesh = search_step(problem.model, problem.cluster, free);
  if (!mesh.ok()) return INFINITY;
  const ForeignPlan& plan = mesh->best.plan;
  StepSearchOptions pins = problem.options;
  pins.tp = plan.tp, pins.dp = plan.dp, pins.pp = plan.pp, pins.zero = plan.zero;
  pins.micro_batch = plan.micro_batch, pins.virtual_stages = plan.virtual_stages;
  pins.features.sequence_parallel = plan.sequence_parallel;
  pins.pin_sequence_parallel = true;
  return best(problem, pins);
}

// Galvatron: layer by layer recomputed or not, one stage a device, 1F1B; no context parallelism, no offload.
double layer_wise(const Problem& problem) {
  StepSearchOptions pins = problem.options;
  pins.virtual_stages = 1;
  return best(problem, pins);
}

// Mist: recomputation and offload tuned together, 1F1B with one stage a device and all stages alike.
double uniform_stages_with_offload(const Problem& problem) {
  StepSearchOptions pins = problem.options;
  pins.wide = pins.offload = true;
  pins.virtual_stages = 1, pins.schedule = ForeignSchedule::k1F1B, pins.cp = 1, pins.ep = 1;
  return best(problem, pins);
}

// Every block of every stage the same way.
double uniform_blocks(const Problem& problem) {
  double time = INFINITY;
  for (const Recompute way : {Recompute::kNone, Recompute::kFull}) {
    StepSearchOptions pins = problem.options;
    pins.recompute = way, pins.virtual_stages = 1;
    time = std::min(time, best(problem, pins));
  }
  return time;
}

}  // namespace

TEST_CASE("plans by the rules of other planners are slower by what docs/planning.md says" *
          doctest::test_suite("full")) {
  const std::pair<const char*, std::function<double(const Problem&)>> peers[] = {
      {"Megatron", node_first},
      {"OSDP", operators_sharded},
      {"DP or ZeRO-3", data_parallel_only},
      {"Colossal-Auto", one_after_the_other},
      {"Galvatron", layer_wise},
      {"Mist", uniform_stages_with_offload},
      {"uniform blocks", uniform_blocks},
  };
  std::printf("%-53s %-17s %4s %9s", "model", "cluster", "GiB", "joint s");
  for (const auto& [name, peer] : peers) std::printf(" %14s", name);
  std::printf("\n");
  int gains = 0;
  for (const Setting& setting : kSettings) {
    Problem problem;
    problem.model = *transformer_shape(*parse_shorthand(setting.model));
    problem.cluster = *cluster_preset(setting.cluster);
    problem.options.global_batch = setting.batch;
    problem.options.memory_limit = setting.limit_gib << 30;
    const double joint = joint_search(problem);
    REQUIRE(std::isfinite(joint));
    std::printf("%-53s %-17s %4d %9.3f", setting.model, setting.cluster, static_cast<int>(setting.limit_gib),
                joint);
    for (const auto& [name, peer] : peers) {
      CAPTURE(std::string(name));
      const double theirs = peer(problem);
      CHECK(joint <= theirs * (1 + 1e-9));
      gains += theirs > joint * 1.01;
      if (std::isfinite(theirs))
        std::printf(" %13.2fx", theirs / joint);
      else
        std::printf(" %14s", "does not fit");
    }
    std::printf("\n");
  }
  CHECK(gains >= 20);
}
