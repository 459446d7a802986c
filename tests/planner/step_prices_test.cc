// What a foreign plan may say beyond dp, tp and pp, and what it costs: context and expert parallelism,
// zero-bubble schedules, operators sharded one by one, what waits on the host, adapters.
#include <doctest/doctest.h>

#include <cmath>

#include "graph/base/text.h"
#include "parallel/analytic/pipeline_replay.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_time.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }
constexpr const char* kGpt = "gpt2:L=24,C=4096,H=32,V=51200,T=2048";
constexpr const char* kLlama = "llama:L=16,C=4096,H=32,KV=8,F=14336,V=128256,T=8192";
constexpr const char* kMixture = "moe:L=16,C=4096,H=32,KV=8,F=14336,V=32000,T=4096,E=8,K=2";

ForeignPlan plan_of(std::string_view words, std::string_view features = "") {
  const auto plan = parse_foreign_plan(words, features);
  REQUIRE_MESSAGE(plan.ok(), std::string(plan.status().message()));
  return *plan;
}

StepTime price(const char* model, const ForeignPlan& plan, const Cluster& cluster, int64_t batch) {
  const auto time = step_time(shape(model), plan, cluster, batch);
  REQUIRE_MESSAGE(time.ok(), std::string(time.status().message()));
  return *time;
}

StageMemory first_stage(const char* model, const ForeignPlan& plan, const Cluster& cluster) {
  const TransformerShape m = shape(model);
  return StageTimes(m, plan, cluster)
      .memory(even_stages(m, plan)[0], true, plan.pp == 1, in_flight(plan, 0, 64), plan.virtual_stages);
}

double bubble(ForeignSchedule schedule, int32_t p, int64_t m, double hop = 0) {
  const int32_t chunks = schedule == ForeignSchedule::kZbV ? 2 : 1;
  const double unit = 1.0 / chunks;
  const std::vector<StageTime> times(static_cast<size_t>(p * chunks), {unit, 2 * unit, unit});
  std::vector<ReplayedPass> passes;
  const auto replay = replay_pipeline(schedule, p, chunks, m, times, hop, &passes);
  CHECK(passes.size() == static_cast<size_t>(3 * m * p * chunks));
  const int64_t limit = schedule == ForeignSchedule::kZbH1   ? p
                        : schedule == ForeignSchedule::kZbH2 ? 2 * p - 1
                                                             : 2 * p;
  for (const int64_t peak : replay.peak_live) CHECK(peak <= limit);
  for (const double busy : replay.busy_s) CHECK(busy == doctest::Approx(3.0 * static_cast<double>(m)));
  return 1 - 3.0 * static_cast<double>(m) / replay.makespan_s;
}

}  // namespace

TEST_CASE("words of a foreign plan come back as they went in") {
  for (const char* words :
       {"tp=2,dp=4,pp=4:zb-h1,mb=1", "tp=2,dp=1,pp=4:zb-v,cp=ring:2,mb=1,sp,zero=1",
        "tp=1,dp=8,pp=1,cp=ulysses:2,mb=2", "tp=1,dp=2,pp=2:zb-h2,ep=4,mb=1",
        "tp=1,dp=8,pp=1,mb=1,zero=1,shard=attention:3+mlp:5,chunks=4",
        "tp=1,dp=8,pp=2:gpipe,mb=1,offload=optimizer@host+activations:1/2@host,recompute=full"})
    CHECK(to_text(plan_of(words)) == words);
  CHECK(plan_of("dp=2", "trainable=lora:16").lora == 16);
  for (const char* wrong : {"cp=2", "cp=ring:0", "pp=2:zb-h3", "offload=weights", "offload=params:1/3",
                            "offload=params@file", "shard=attention", "shard=block:2"})
    CHECK(!parse_foreign_plan(wrong, "").ok());
  CHECK(!parse_foreign_plan("dp=2", "trainable=lora").ok());
}

TEST_CASE(
    "zero-bubble schedules keep within their memory; h1 and h2 waste what is published, zb-v 0.04 at most") {
  CHECK(bubble(ForeignSchedule::kZbV, 4, 4) <= 0.1111 + 1e-4);
  // Rules alone, without the local search of what runs.
  CHECK(bubble(ForeignSchedule::kZbV, 4, 8) < 0.021);
  CHECK(bubble(ForeignSchedule::kZbV, 4, 16) < 0.011);
  CHECK(bubble(ForeignSchedule::kZbV, 8, 32) < 0.036);
  for (const int32_t p : {2, 4, 8}) {
    CHECK(bubble(ForeignSchedule::kZbH1, p, 32) <= (p - 1) / (3 * 32.0 + p - 1) + 1e-9);
    CHECK(bubble(ForeignSchedule::kZbH2, p, 32) <= 1e-9);
  }
}

TEST_CASE(
    "a sequence in two parts takes half the activations and, on links without end, about half the time") {
  Cluster cluster = *cluster_preset("dgx-h100:2");
  for (GroupLink& link : cluster.node_links) link.link = {1e30, 0};
  cluster.kinds[0].issue_s = 0;
  const ForeignPlan one = plan_of("mb=1"), ring = plan_of("cp=ring:2"), ulysses = plan_of("cp=ulysses:2");
  const double whole = price(kLlama, one, cluster, 8).step_s, half = price(kLlama, ring, cluster, 8).step_s;
  CHECK(half > whole / 2);
  CHECK(half < whole * 0.56);
  CHECK(price(kLlama, ulysses, cluster, 8).step_s == doctest::Approx(half));
  CHECK(2 * first_stage(kLlama, ring, cluster).activations ==
        doctest::Approx(static_cast<double>(first_stage(kLlama, one, cluster).activations)));
  // Without the computation to run beside, what a gather sends is exposed, and it sends twice of it backward.
  const Cluster real = *cluster_preset("dgx-h100:2");
  CHECK(price(kLlama, plan_of("cp=gather:2"), real, 8).step_s > price(kLlama, ring, real, 8).step_s);
}

TEST_CASE("experts in parts: a rank holds its own, and the slots travel") {
  const Cluster cluster = *cluster_preset("dgx-h100:8");
  const ForeignPlan data = plan_of("dp=8"), experts = plan_of("dp=2,ep=4");
  CHECK(first_stage(kMixture, experts, cluster).optimizer <
        first_stage(kMixture, data, cluster).optimizer / 3);
  CHECK(price(kMixture, experts, cluster, 64).communication_s > 0);
  CHECK(price(kMixture, data, cluster, 64).communication_s == 0);
  CHECK(price(kMixture, experts, cluster, 64).gradients_s < price(kMixture, data, cluster, 64).gradients_s);
  CHECK(!step_time(shape(kMixture), plan_of("dp=1,ep=16"), *cluster_preset("dgx-h100:16"), 64).ok());
}

TEST_CASE("operators sharded one by one lie between nothing and everything sharded") {
  const Cluster cluster = *cluster_preset("dgx-a100-40gb:8");
  const auto none = price(kGpt, plan_of("dp=8,zero=0"), cluster, 64),
             some = price(kGpt, plan_of("dp=8,shard=mlp:12"), cluster, 64),
             most = price(kGpt, plan_of("dp=8,shard=attention:24+mlp:24"), cluster, 64);
  CHECK(none.gradients_s < some.gradients_s);
  CHECK(some.gradients_s < most.gradients_s);
  const auto bytes = [&](const char* words) { return first_stage(kGpt, plan_of(words), cluster).total(); };
  CHECK(bytes("dp=8,shard=mlp:12") < bytes("dp=8"));
  CHECK(bytes("dp=8,shard=attention:24+mlp:24") < bytes("dp=8,shard=mlp:12"));
  CHECK(bytes("dp=8,shard=mlp:12,chunks=4") < bytes("dp=8,shard=mlp:12"));
  CHECK(price(kGpt, plan_of("dp=8,shard=mlp:12,chunks=4"), cluster, 64).step_s >= some.step_s);
}

TEST_CASE("what waits on the host frees the device, and costs nothing on a link without cost") {
  Cluster cluster = *cluster_preset("dgx-a100-40gb:8");
  const StageMemory all = first_stage(kGpt, plan_of("dp=8"), cluster);
  const StageMemory away = first_stage(kGpt, plan_of("dp=8,offload=optimizer+params+activations"), cluster);
  CHECK(away.optimizer == 0);
  CHECK(away.activations < all.activations / 10);
  CHECK(away.host > all.optimizer + all.activations / 2);
  const double kept = price(kGpt, plan_of("dp=8"), cluster, 64).step_s;
  const StepTime slow = price(kGpt, plan_of("dp=8,offload=optimizer+params+activations"), cluster, 64);
  CHECK(slow.step_s > kept);
  CHECK(price(kGpt, plan_of("dp=8,offload=optimizer:1/2"), cluster, 64).step_s < slow.step_s);
  cluster.host_link = {1e30, 0};
  CHECK(price(kGpt, plan_of("dp=8,offload=optimizer+params+activations"), cluster, 64).step_s == kept);
}

TEST_CASE("a frozen model with adapters has hardly any gradients, state or reduction, and less work") {
  const Cluster cluster = *cluster_preset("dgx-h100:8");
  const ForeignPlan full = plan_of("dp=8"), lora = plan_of("dp=8", "trainable=lora:16");
  const StageMemory a = first_stage(kLlama, full, cluster), b = first_stage(kLlama, lora, cluster);
  CHECK(b.optimizer < a.optimizer / 50);
  CHECK(b.gradients < a.gradients / 50);
  CHECK(b.parameters >= a.parameters);
  const StepTime x = price(kLlama, full, cluster, 64), y = price(kLlama, lora, cluster, 64);
  CHECK(y.gradients_s < x.gradients_s / 20);
  CHECK(y.update_s < x.update_s / 2);
  CHECK(y.compute_s < 0.9 * x.compute_s);
  CHECK(y.compute_s > 0.6 * x.compute_s);
}
