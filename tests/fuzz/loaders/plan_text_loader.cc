#include "graph/graph.h"
#include "graph/plan.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

// A plan in which every member differs from its default.
Plan sample_plan() {
  Plan plan;
  plan.graph_fingerprint = 0xfedcba9876543210;
  plan.strategy = "dp=2,tp=3,pp=2:1f1b";
  plan.stages = {{DeviceMesh{{{"dp", 2}, {"tp", 3}}, {0, 1, 2, 3, 4, 5}}}, {DeviceMesh{{{"dp", 2}}, {6, 7}}}};
  plan.nodes.resize(3);
  plan.nodes[1].factor_axes = {{'m', {0}}, {'n', {1, 0}}};
  plan.nodes[1].carried = {0};
  plan.nodes[1].carry_set = 1;
  plan.nodes[1].chunks = 4;
  plan.nodes[1].factor_units = {{'n', 64}};
  plan.nodes[2].stage = 1;
  plan.nodes[2].factor_axes = {{'b', {0}}};
  Placement owner;
  owner.stored.dims = {{{0, 1}, 16}, {}};
  owner.tier = Tier::kHost;
  Placement mirror;
  mirror.mesh = 1;
  mirror.stored.dims = {{}, {{}, 1}};
  mirror.stored.partial = {0};
  mirror.stored.reduce = ReduceKind::kMax;
  plan.stored = {{TensorId{2}, {owner, mirror}}, {TensorId{5}, {}}};
  plan.recompute = {TensorId{7}, TensorId{9}};
  plan.schedule = ScheduleKind::k1F1B;
  plan.global_batch = 96;
  plan.micro_batches = 8;
  plan.symbols = {{"T", 128}, {"S", 1}};
  plan.estimate = {0.123456789012345, 0.1, 0.02, {int64_t{1} << 40, 12345}, 0.037, 0x1db0053241f7380f};
  return plan;
}

class PlanTextLoader final : public Loader {
 public:
  PlanTextLoader() : graph_(rich_graph()) {
    Plan plan = sample_plan();
    plan.graph_fingerprint = graph_.fingerprint();
    plan.nodes.assign(graph_.nodes().size(), {});
    plan.nodes[0].factor_axes = {{'k', {0}}, {'n', {1}}};
    plan.nodes[0].chunks = 2;
    plan.nodes[2].factor_axes = {{'a', {0}}};
    plan.nodes[2].carried = {1};
    plan.nodes[2].carry_set = 0;
    plan.stored.resize(1);  // of w, [8, 4]
    plan.stored[0].placements[0].stored.dims[0].unit = 4;
    seed_ = print(plan, graph_);
    check_ok(parse_plan(seed_, graph_).status());
  }
  std::string_view name() const override { return "plan text"; }
  Outcome run(Random& random) override {
    std::string text = seed_;
    mutate_text(text, random);
    auto plan = parse_plan(text, graph_);
    if (plan.ok()) (void)print(*plan, graph_);
    return {text.starts_with("plan {"), plan.status()};
  }

 private:
  Graph graph_;
  std::string seed_;
};

}  // namespace

std::unique_ptr<Loader> plan_text_loader() { return std::make_unique<PlanTextLoader>(); }

}  // namespace tessera::fuzz
