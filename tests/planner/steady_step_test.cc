// Plans taken for being steadier where the fastest is barely faster.
#include "parallel/analytic/steady_step.h"

#include <doctest/doctest.h>

#include <random>

#include "graph/base/text.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape shape(const std::string& text) { return *transformer_shape(*parse_shorthand(text)); }

}  // namespace

TEST_CASE("on 60 random problems the plan taken is the steadiest of all that are nearly as fast") {
  std::mt19937 random(7);
  const auto pick = [&](auto... values) {
    const int64_t all[] = {values...};
    return all[random() % std::size(all)];
  };
  int taken = 0, kept = 0;
  for (int i = 0; i < 60; ++i) {
    const int64_t heads = pick(8, 16), width = heads * pick(64, 128);
    const TransformerShape model =
        shape(format("gpt2:L={},C={},H={},V=50304,T=1024", pick(4, 6, 8), width, heads));
    const Cluster cluster =
        *cluster_preset(format("{}:{}", pick(0, 1) ? "dgx-a100-40gb" : "pcie-rtx-4090", pick(2, 4, 8)));
    StepSearchOptions options;
    options.global_batch = pick(8, 16, 32);
    const auto fastest = search_step(model, cluster, options);
    REQUIRE(fastest.ok());
    const double within = pick(2, 5, 20) / 100.0, best = fastest->best.time.step_s;
    // Every configuration solved by itself.
    std::optional<FoundStep> wanted;
    for (const ForeignPlan& plan : step_space(model, cluster, options)) {
      if (!may_stand_for(plan, fastest->best.plan)) continue;
      double bound = 0;
      const auto one = StepSolver(model, cluster, options, plan, cluster.kinds[0].memory_bytes).solve(bound);
      if (!one.ok() || one->time.step_s > best * (1 + within)) continue;
      const bool alike = wanted && !steadier(plan, wanted->plan) && !steadier(wanted->plan, plan);
      if (!wanted || steadier(plan, wanted->plan) || (alike && one->time.step_s < wanted->time.step_s))
        wanted = *one;
    }
    REQUIRE(wanted);
    const auto found = steady_step(model, cluster, options, *fastest, within);
    const FoundStep& settled = found ? *found : fastest->best;
    CHECK(settled.plan.tp == wanted->plan.tp);
    CHECK(settled.plan.micro_batch == wanted->plan.micro_batch);
    CHECK(settled.time.step_s == wanted->time.step_s);
    (found ? taken : kept) += 1;
    if (found) CHECK(steadier(found->plan, fastest->best.plan));
    CHECK_FALSE(steady_step(model, cluster, options, *fastest, 0));
  }
  // Both happen.
  CHECK(taken > 5);
  CHECK(kept > 5);
}

TEST_CASE("what is taken in the whole space keeps pins and is within the share that may be given up") {
  const TransformerShape model = shape("gpt2:L=24,C=4096,H=32,V=51200,T=2048");
  const Cluster cluster = *cluster_preset("dgx-a100-40gb:32");
  StepSearchOptions options;
  options.global_batch = 128, options.wide = true;
  const auto fastest = search_step(model, cluster, options);
  REQUIRE(fastest.ok());
  for (const double within : {0.02, 0.1, 0.3}) {
    const auto found = steady_step(model, cluster, options, *fastest, within);
    if (!found) continue;
    CHECK(found->time.step_s <= fastest->best.time.step_s * (1 + within));
    CHECK(found->time.step_s >= fastest->best.time.step_s);
    CHECK(may_stand_for(found->plan, fastest->best.plan));
    for (const int64_t bytes : found->memory_bytes) CHECK(bytes <= cluster.kinds[0].memory_bytes);
  }
  REQUIRE(steady_step(model, cluster, options, *fastest, 0.3));
  options.tp = fastest->best.plan.tp, options.micro_batch = fastest->best.plan.micro_batch;
  CHECK_FALSE(steady_step(model, cluster, options, *fastest, 0.3));
}
