// Explanations of steps on hardware that is absent: parts add up to what the step's price and memory say.
#include "parallel/analytic/explain_step.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape model_of(std::string_view description) {
  const Result<ModelConfig> config = parse_shorthand(description);
  REQUIRE(config.ok());
  Result<TransformerShape> shape = transformer_shape(*config);
  REQUIRE(shape.ok());
  return *shape;
}

Cluster cluster_of(const std::string& preset) {
  Result<Cluster> cluster = cluster_preset(preset);
  REQUIRE(cluster.ok());
  return std::move(cluster).value();
}

void check_sums(const Explanation& it, const FoundStep& found) {
  double sum = 0;
  for (const TimeShare& share : it.time) {
    CHECK(share.seconds >= 0);
    sum += share.seconds;
  }
  // A handful of doubles added up in another order.
  CHECK(std::abs(sum - found.time.step_s) <= 1e-12 * found.time.step_s);
  int64_t bytes = 0;
  for (const MemoryShare& share : it.memory)
    if (share.tier == Tier::kDevice) bytes += share.bytes;
  CHECK(bytes == std::ranges::max(found.memory_bytes));
  CHECK(it.memory_bytes == bytes);
  // Nothing is left over: every byte has a cause.
  CHECK(std::ranges::none_of(it.memory, [](const MemoryShare& share) { return share.cause == "unused"; }));
}

}  // namespace

TEST_CASE("a priced step's time and memory by cause add up, for schedules, offload and context parallelism") {
  const TransformerShape model = model_of("gpt2:L=24,C=2048,H=16,V=51200,T=1024");
  const Cluster cluster = cluster_of("dgx-a100-80gb:16");
  for (const char* words :
       {"tp=2,dp=4,pp=2:1f1b,mb=2,recompute=full", "tp=8,dp=2", "dp=16,zero=3,mb=1",
        "tp=2,dp=2,pp=4:gpipe,mb=1", "tp=2,dp=2,pp=4:interleaved:2,mb=1", "tp=4,dp=1,pp=4:zb-h1,mb=1",
        "tp=4,dp=1,pp=4:zb-v,mb=1", "tp=4,dp=2,cp=ring:2,mb=1", "tp=2,dp=8,mb=1,offload=optimizer:1/2"}) {
    CAPTURE(words);
    const Result<ForeignPlan> plan = parse_foreign_plan(words, "");
    if (!plan.ok()) MESSAGE(plan.status().to_string());
    REQUIRE(plan.ok());
    const Result<FoundStep> found = price_step(model, *plan, cluster, 64);
    if (!found.ok()) MESSAGE(found.status().to_string());
    REQUIRE(found.ok());
    const Result<Explanation> it = explain_step(model, cluster, *found, {.global_batch = 64});
    REQUIRE(it.ok());
    check_sums(*it, *found);
    CHECK(!it->timeline.spans.empty());
    CHECK(it->timeline.rows.size() == static_cast<size_t>(plan->pp));
  }
}

TEST_CASE("a searched step names its runners-up with what they lose, and what would not fit") {
  const TransformerShape model = model_of("gpt2:L=48,C=4096,H=32,V=51200,T=2048");
  const Cluster cluster = cluster_of("dgx-a100-80gb:32");
  StepSearchOptions options;
  options.global_batch = 64;
  options.memory_limit = int64_t{24} << 30;
  const Result<StepSearchResult> found = search_step(model, cluster, options);
  REQUIRE(found.ok());
  const Result<Explanation> it =
      explain_step(model, cluster, found->best,
                   {.global_batch = 64, .memory_limit = options.memory_limit, .search = &*found});
  REQUIRE(it.ok());
  check_sums(*it, found->best);
  CHECK(it->gap == found->gap);
  REQUIRE(it->runners_up.size() >= found->runners_up.size());
  bool too_large = false;
  for (const RunnerUp& other : it->runners_up) {
    if (other.over_bytes > 0) {
      too_large = true;
      CHECK(other.bytes == options.memory_limit + other.over_bytes);
      CHECK(!other.why.empty());
    } else {
      CHECK(other.loses_s >= 0);
      CHECK(other.loses_s == doctest::Approx(other.step_s - found->best.time.step_s));
    }
  }
  CHECK(too_large);
  int64_t blocks = 0;
  for (const BlockDecision& stage : it->blocks) blocks += stage.count;
  CHECK(blocks == model.L);
}

TEST_CASE("the listed parameters of a transformer are all of its parameters") {
  for (const char* description :
       {"gpt2:L=24,C=2048,H=16,V=51200,T=1024,tied=0", "llama:L=8,C=1024,H=16,KV=4,F=2816,V=32000,T=2048"}) {
    CAPTURE(description);
    const TransformerShape model = model_of(description);
    const Cluster cluster = cluster_of("dgx-a100-80gb:8");
    const Result<ForeignPlan> plan = parse_foreign_plan("dp=8", "");
    REQUIRE(plan.ok());
    const Result<FoundStep> found = price_step(model, *plan, cluster, 8);
    REQUIRE(found.ok());
    const Result<Explanation> it = explain_step(model, cluster, *found, {.global_batch = 8});
    REQUIRE(it.ok());
    int64_t bytes = 0;
    for (const ExplainedTensor& tensor : it->tensors)
      if (tensor.kind == "parameter") bytes += tensor.bytes * tensor.count;
    CHECK(bytes == 2 * model.parameters());  // bf16
  }
}
