#include "graph/plan.h"

#include <doctest/doctest.h>

#include "graph/models/model_family.h"
#include "graph/transform/training.h"

using namespace tessera;

namespace {

Graph step_graph() {
  Result<ModelConfig> config = parse_shorthand("mlp:L=1,C=8,F=16,V=3");
  REQUIRE(config.ok());
  Result<Graph> forward = build_model(*config);
  REQUIRE(forward.ok());
  REQUIRE(add_token_loss(*forward).ok());
  Result<Graph> step = make_training_step(*forward, {});
  REQUIRE(step.ok());
  return std::move(*step);
}

// Something in every field.
Plan full_plan(const Graph& graph) {
  Plan plan;
  plan.graph_fingerprint = graph.fingerprint();
  plan.strategy = "dp=2,tp=2";
  plan.stages = {{*parse_mesh("dp=2, tp=2")}, {*parse_mesh("tp=4 on [7, 6, 5, 4]")}};
  plan.nodes.resize(graph.nodes().size());
  plan.nodes[0].factor_axes = {{'a', {0}}, {'n', {1, 0}}};
  plan.nodes[0].factor_units = {{'n', 8}};
  plan.nodes[0].factor_firsts = {{'n', 3}};
  plan.nodes[1].stage = 1;
  plan.nodes[1].factor_axes = {{'a', {0}}};
  plan.nodes[2].carried = {1};
  plan.nodes[2].carry_set = 1;
  plan.nodes[2].chunk_factor = 'k';
  plan.nodes[2].chunks = 4;
  plan.nodes[3].chunk_factor = 's';
  plan.nodes[3].chunks = 2;
  plan.nodes[3].chunk_order = ChunkOrder::kRotating;
  plan.nodes[4].chunks = 3;
  plan.nodes[4].tier = Tier::kHost;
  const TensorId weight = *graph.find_tensor("layer.0.weight"), bias = *graph.find_tensor("layer.0.bias");
  plan.stored = {{weight,
                  {{0, *parse_spec("{[tp unit 8 first 1], [dp]}", plan.stages[0].mesh), Tier::kDevice},
                   {1, *parse_spec("{[], [tp]}", plan.stages[1].mesh), Tier::kHost}}},
                 {bias, {{0, *parse_spec("{[]} partial(sum: dp)", plan.stages[0].mesh), Tier::kFile}}}};
  plan.recompute = {graph.nodes()[0].outputs[0]};
  plan.keep_gathered = {weight, bias};
  plan.offload = {{graph.nodes()[0].outputs[0], Tier::kFile}, {graph.nodes()[1].outputs[0], Tier::kHost}};
  plan.zigzag = {0};
  plan.prefetch = 2;
  plan.schedule = ScheduleKind::kZbH1;
  plan.global_batch = 8;
  plan.micro_batches = 2;
  plan.symbols = {{"T", 128}};
  plan.estimate = {0.1, 0.07, 1e-9, {4096, 8192}, 0.25, 0x1db0053241f7380f};
  return plan;
}

}  // namespace

TEST_CASE("a plan reads back exactly from its text") {
  const Graph graph = step_graph();
  const Plan plan = full_plan(graph);
  const std::string text = print(plan, graph);
  INFO(text);
  Result<Plan> read = parse_plan(text, graph);
  REQUIRE_MESSAGE(read.ok(), read.status().to_string());
  CHECK(print(*read, graph) == text);
  CHECK(read->graph_fingerprint == plan.graph_fingerprint);
  CHECK(read->strategy == plan.strategy);
  CHECK(read->stages == plan.stages);
  CHECK(read->nodes == plan.nodes);
  CHECK(read->stored == plan.stored);
  CHECK(read->recompute == plan.recompute);
  CHECK(read->keep_gathered == plan.keep_gathered);
  CHECK(read->offload == plan.offload);
  CHECK(read->zigzag == plan.zigzag);
  CHECK(read->prefetch == plan.prefetch);
  CHECK(read->schedule == plan.schedule);
  CHECK(read->global_batch == plan.global_batch);
  CHECK(read->micro_batches == plan.micro_batches);
  CHECK(read->symbols == plan.symbols);
  CHECK(read->estimate == plan.estimate);
}

TEST_CASE("a plan is read with names next to ids, and a wrong edit is refused with its line") {
  const Graph graph = step_graph();
  const Plan plan = full_plan(graph);
  const std::string text = print(plan, graph);
  const std::string name = graph.tensor(graph.nodes()[0].outputs[0]).name;
  CHECK(text.find("node 0 " + name + " matmul: {a: [dp], n: [tp, dp]} units {n: 8} firsts {n: 3}\n") !=
        std::string::npos);
  CHECK(text.find(": mesh 0 {[tp unit 8 first 1], [dp]} device, mesh 1 {[], [tp]} host\n") !=
        std::string::npos);
  const auto edited = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return parse_plan(changed.replace(at, from.size(), to), graph).status();
  };
  CHECK(edited("dp=2,tp=2", "anything").ok());
  CHECK(edited("matmul:", "add:").message().find("in the graph, not") != std::string::npos);
  CHECK(edited("n: [tp, dp]", "n: [ep]").message().find("no axis 'ep'") != std::string::npos);
  CHECK(edited("{[tp unit 8 first 1], [dp]}", "{[tp unit 8 first 1]}").message().find("spec has 1 dims") !=
        std::string::npos);
  CHECK(edited("mesh 1 {", "mesh 2 {").message().find("not declared") != std::string::npos);
  CHECK(edited("schedule zb_h1", "schedule best").message().find("line 7: found 'best'") !=
        std::string::npos);
  CHECK(edited("micro_batches 2", "micro_batches 0").message().find("wanted 1") != std::string::npos);
  CHECK(!edited("\n}", "\n").ok());
}

TEST_CASE("stored tensors are found by id") {
  const Graph graph = step_graph();
  const Plan plan = full_plan(graph);
  REQUIRE(plan.find_stored(*graph.find_tensor("layer.0.bias")));
  CHECK(plan.find_stored(*graph.find_tensor("layer.0.bias"))->placements[0].tier == Tier::kFile);
  CHECK(plan.find_stored(*graph.find_tensor("x")) == nullptr);
}
