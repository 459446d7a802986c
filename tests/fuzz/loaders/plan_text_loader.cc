#include "graph/graph.h"
#include "graph/plan.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/plan_sample.h"

namespace tessera::fuzz {
namespace {

class PlanTextLoader final : public Loader {
 public:
  PlanTextLoader() : graph_(rich_graph()) {
    Plan plan = testing::sample_plan();
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
