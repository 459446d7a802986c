// Texts that somebody broke: reading them ends in a value that verifies or in an error, never in a crash.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "graph/models/model_family.h"
#include "graph/plan.h"
#include "graph/sharding_spec.h"
#include "graph/transform/training.h"

using namespace tessera;

namespace {

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  size_t below(size_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state_ >> 33) % bound;
  }

 private:
  uint64_t state_;
};

// Cuts, doubles, swaps and overwrites pieces; numbers become large ones.
std::string broken(std::string text, Numbers& numbers) {
  static constexpr std::string_view kPieces[] = {"-1",
                                                 "9223372036854775807",
                                                 "4611686018427387904",
                                                 "0",
                                                 "\"",
                                                 "{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 "= ",
                                                 "@phase update",
                                                 "\n",
                                                 ";",
                                                 ":",
                                                 ",",
                                                 "%1",
                                                 "1e999",
                                                 "nan",
                                                 "f64",
                                                 "q8_0",
                                                 "65536",
                                                 "\\"};
  for (size_t change = numbers.below(3) + 1; change > 0 && !text.empty(); --change) {
    const size_t at = numbers.below(text.size()), length = numbers.below(12);
    switch (numbers.below(4)) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, text.substr(numbers.below(text.size()), length * 4)); break;
      case 2: text.replace(at, numbers.below(3), kPieces[numbers.below(std::size(kPieces))]); break;
      default: text[at] = static_cast<char>(numbers.below(256)); break;
    }
  }
  return text;
}

Graph step_graph() {
  Result<Graph> forward = build_model(*parse_shorthand("llama:L=1,C=8,H=4,KV=2,F=12,V=11,T=6"));
  REQUIRE(forward.ok());
  REQUIRE(add_token_loss(*forward).ok());
  Result<Graph> step = make_training_step(*forward, {});
  REQUIRE(step.ok());
  return std::move(*step);
}

}  // namespace

TEST_CASE("a broken graph text is refused, or is another graph that verifies") {
  const std::string text = print(step_graph());
  Numbers numbers(1);
  int read = 0, refused = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string changed = broken(text, numbers);
    const Result<Graph> graph = parse_graph(changed);
    if (!graph.ok()) {
      ++refused;
      continue;
    }
    ++read;
    const std::string again = print(*graph);
    const Result<Graph> reread = parse_graph(again);
    REQUIRE_MESSAGE(reread.ok(), reread.status().to_string());
    CHECK(print(*reread) == again);
  }
  // Both happen, or the mutations test nothing.
  CHECK(read > 20);
  CHECK(refused > 500);
}

TEST_CASE("a broken plan text is refused, or is another plan that reads back") {
  const Graph graph = step_graph();
  Plan plan;
  plan.strategy = "dp=2,tp=2";
  plan.stages = {{*parse_mesh("dp=2, tp=2")}};
  plan.nodes.resize(graph.nodes().size());
  for (NodePlan& node : plan.nodes) node.factor_axes = {{'a', {0}}, {'n', {1}}};
  for (TensorId parameter : graph.tensors_of_kind(TensorKind::kParameter)) {
    ShardingSpec spec = ShardingSpec::replicated(graph.type(parameter).shape.rank());
    spec.dims[0].axes = {1};
    plan.stored.push_back({parameter, {{0, spec, Tier::kDevice}}});
  }
  const std::string text = print(plan, graph);
  Numbers numbers(2);
  int read = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const Result<Plan> changed = parse_plan(broken(text, numbers), graph);
    ++(changed.ok() ? read : refused);
    if (!changed.ok()) continue;
    const std::string again = print(*changed, graph);
    const Result<Plan> reread = parse_plan(again, graph);
    REQUIRE_MESSAGE(reread.ok(), reread.status().to_string());
    CHECK(print(*reread, graph) == again);
  }
  CHECK(read > 20);
  CHECK(refused > 500);
}

TEST_CASE("broken meshes, specs and shorthands are refused or read back") {
  const DeviceMesh mesh = *parse_mesh("dp=2, tp=4");
  Numbers numbers(3);
  for (int i = 0; i < 3000; ++i) {
    if (const auto other = parse_mesh(broken("dp=2, tp=4 on [7, 6, 5, 4, 3, 2, 1, 0]", numbers)); other.ok())
      CHECK(*parse_mesh(to_text(*other)) == *other);
    if (const auto spec = parse_spec(broken("{[dp], [tp unit 64], []} partial(sum: tp)", numbers), mesh);
        spec.ok())
      CHECK(*parse_spec(to_text(*spec, mesh), mesh) == *spec);
    // Layers are cut off: a graph of 10^9 blocks is a request, not a fault.
    if (auto config = parse_shorthand(broken("llama:L=1,C=8,H=4,KV=2,F=12,V=11,T=6,norm_eps=1e-5", numbers));
        config.ok()) {
      if (config->sizes.contains("L") && config->sizes["L"] > 2) config->sizes["L"] = 2;
      if (const auto graph = build_model(*config); graph.ok()) CHECK(graph->verify().ok());
    }
  }
}
