// Low-rank adapters as a change of a graph: what is added, what is frozen, and that taking them out gives
// back the graph.
#include "graph/transform/adapters.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

Graph model(std::string_view shorthand) { return ok(build_model(*parse_shorthand(shorthand))); }

constexpr std::string_view kGpt2 = "gpt2:L=2,C=32,H=4,V=65,T=16";
constexpr std::string_view kLlama = "llama:L=2,C=32,H=4,KV=2,F=52,V=65,T=16,tied=0";

Graph activated() {
  return ok(parse_graph(R"(graph {
  symbol B
  input x: f32[B, 8]
  parameter w: f32[8, 6]
  parameter b: f32[6]
  y, pre = matmul(x, w, b) {activation = "gelu"} : f32[B, 6], f32[B, 6]
  output y = y
})"));
}

std::string refusal(const Graph& graph, std::span<const TensorId> weights, AdapterOptions options) {
  const auto made = with_adapters(graph, weights, options);
  REQUIRE(!made.ok());
  return std::string(made.status().message());
}

}  // namespace

TEST_CASE("every matmul of the blocks has adapters; they alone are trained, and are removed without a trace") {
  for (const std::string_view shorthand : {kGpt2, kLlama}) {
    CAPTURE(shorthand);
    const Graph base = model(shorthand);
    const std::vector<TensorId> weights = adaptable_weights(base);
    CHECK(weights.size() == (shorthand == kGpt2 ? 2 * 6 : 2 * 7));
    const Graph adapted = ok(with_adapters(base, weights, {4, 8}));
    REQUIRE(adapted.verify().ok());
    const std::vector<Adapter> found = find_adapters(adapted);
    CHECK(found.size() == weights.size());
    for (const Adapter& it : found) {
      CHECK(it.factor == 2);
      CHECK(it.transposed);
      const Shape w = adapted.type(*adapted.find_tensor(it.weight)).shape;
      CHECK(adapted.type(*adapted.find_tensor(it.a)).shape == Shape{4, w[1]});
      CHECK(adapted.type(*adapted.find_tensor(it.b)).shape == Shape{w[0], 4});
    }
    for (const TensorId id : adapted.tensors_of_kind(TensorKind::kParameter))
      CHECK(adapted.tensor(id).trainable == (adapted.tensor(id).name.find(".lora_") != std::string::npos));
    CHECK(print(ok(without_adapters(adapted))) == print(base));

    Graph loss = adapted;
    REQUIRE(add_token_loss(loss).ok());
    const Graph step = ok(make_training_step(loss, {}));
    CHECK(step.gradients().size() == 2 * weights.size());
    for (const TensorId id : step.tensors_of_kind(TensorKind::kState))
      CHECK(step.tensor(id).name.find(".lora_") != std::string::npos);
  }
}

TEST_CASE("the first matrix of an adapter begins at random and the second at zero") {
  const Graph base = model(kGpt2);
  const Graph adapted = ok(with_adapters(base, adaptable_weights(base), {4, 0}));
  const auto of = [&](const char* name) { return initializer_for(adapted, *adapted.find_tensor(name)); };
  CHECK(of("block.0.q.lora_b").kind == Initializer::Kind::kZeros);
  CHECK(of("block.0.q.lora_a").kind == Initializer::Kind::kNormal);
  CHECK(of("block.0.q.lora_a").stddev == doctest::Approx(1 / std::sqrt(32.0)));
  CHECK(find_adapters(adapted)[0].factor == 1);
}

TEST_CASE("an activation fused to a product follows the adapter's sum, for weights stored either way") {
  const Graph base = activated();
  const Graph adapted = ok(with_adapters(base, adaptable_weights(base), {2, 0}));
  REQUIRE(adapted.verify().ok());
  const std::vector<Adapter> found = find_adapters(adapted);
  REQUIRE(found.size() == 1);
  CHECK(!found[0].transposed);
  CHECK(adapted.type(*adapted.find_tensor("w.lora_a")).shape == Shape{8, 2});
  CHECK(adapted.type(*adapted.find_tensor("w.lora_b")).shape == Shape{2, 6});
  const Node& last = adapted.nodes().back();
  CHECK(last.op->name == "gelu");
  CHECK(adapted.node(adapted.tensor(last.inputs[0]).producer).op->name == "add");
  const Graph again = ok(without_adapters(adapted));
  REQUIRE(again.verify().ok());
  CHECK(again.nodes().size() == 2);
  CHECK(again.tensors_of_kind(TensorKind::kParameter).size() == 2);
}

TEST_CASE("magnitudes stand between a product and its bias, train, and go without a trace") {
  for (const std::string_view shorthand : {kGpt2, kLlama}) {
    CAPTURE(shorthand);
    const Graph base = model(shorthand);
    std::vector<AdapterPlacement> placements;
    for (const TensorId weight : adaptable_weights(base))
      placements.push_back({.weight = weight, .rank = 2, .factor = 3, .has_magnitude = true});
    const Graph adapted = ok(with_adapters(base, placements));
    REQUIRE(adapted.verify().ok());
    const std::vector<Adapter> found = find_adapters(adapted);
    CHECK(found.size() == placements.size());
    for (const Adapter& it : found) {
      CHECK(it.factor == 3);
      CHECK(it.rank == 2);
      CHECK(it.base_bias.empty() == (shorthand == kLlama));
      CHECK(adapted.type(*adapted.find_tensor(it.magnitude)).shape ==
            Shape{adapted.type(*adapted.find_tensor(it.weight)).shape[0]});
    }
    CHECK(print(ok(without_adapters(adapted))) == print(base));
    Graph loss = adapted;
    REQUIRE(add_token_loss(loss).ok());
    CHECK(ok(make_training_step(loss, {})).gradients().size() == 3 * placements.size());
  }
  const Graph base = model("llama:L=1,C=8,H=2,F=12,V=16,T=8");
  const AdapterPlacement table{
      .weight = *base.find_tensor("token_embedding"), .rank = 2, .has_magnitude = true};
  CHECK(with_adapters(base, std::span(&table, 1)).status().message().find("a table, are not supported") !=
        std::string::npos);
}

TEST_CASE("a table's adapter is looked up, and adapters of one name share their first matrix") {
  const Graph base = model("llama:L=1,C=8,H=2,F=12,V=16,T=8");
  const auto id = [&](const char* name) { return *base.find_tensor(name); };
  const std::vector<AdapterPlacement> placements = {
      {.weight = id("token_embedding"), .rank = 2},
      {.weight = id("block.0.q"), .rank = 3, .factor = 2, .a = "block.0.q.lora_a"},
      {.weight = id("block.0.k"), .rank = 3, .factor = 2, .a = "block.0.q.lora_a", .has_bias = true}};
  const Graph adapted = ok(with_adapters(base, placements));
  const std::vector<Adapter> found = find_adapters(adapted);
  REQUIRE(found.size() == 3);
  CHECK(found[0].is_table);
  CHECK(adapted.type(*adapted.find_tensor("token_embedding.lora_a")).shape == Shape{16, 2});
  CHECK(adapted.type(*adapted.find_tensor("token_embedding.lora_b")).shape == Shape{8, 2});
  CHECK(found[1].a == found[2].a);
  CHECK(found[2].bias == "block.0.k.lora_bias");
  CHECK(print(ok(without_adapters(adapted))) == print(base));
}

TEST_CASE("adapters that cannot be are refused with the reason") {
  const Graph base = model(kGpt2);
  const std::vector<TensorId> weights = adaptable_weights(base);
  CHECK(refusal(base, weights, {0, 0}).find("the rank is 0") != std::string::npos);
  CHECK(refusal(base, weights, {33, 0}).find("has no more than 32") != std::string::npos);
  CHECK(refusal(base, {}, {4, 0}).find("no weight was chosen") != std::string::npos);
  // A tied table is read by the embedding too: no product of matrices could be merged into it.
  const TensorId table = *base.find_tensor("token_embedding");
  CHECK(refusal(base, std::span(&table, 1), {4, 0}).find("'token_embedding' is not a matrix") !=
        std::string::npos);
  const Graph adapted = ok(with_adapters(base, weights, {4, 0}));
  const std::vector<TensorId> left = adaptable_weights(adapted);
  CHECK(refusal(adapted, left, {4, 0}).find("has some already") != std::string::npos);
}
