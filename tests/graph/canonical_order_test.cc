// The order in which a model is written down does not matter.
#include "graph/transform/canonical_order.h"

#include <doctest/doctest.h>

#include <random>
#include <string_view>

#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/precision.h"
#include "graph/transform/serving.h"
#include "graph/transform/training.h"
#include "tests/reordered_graph.h"

using namespace tessera;

namespace {

constexpr std::string_view kModels[] = {
    "gpt2:L=3,C=32,H=4,V=64,T=32",
    "gpt2:L=2,C=32,H=4,V=64,T=32,dropout=0.1,tied=0",
    "llama:L=3,C=32,H=4,KV=2,F=64,V=64,T=32",
    "moe:L=2,C=32,H=4,KV=2,F=48,E=4,K=2,V=64,T=32,z=0.001",
    "encoder:L=2,C=32,H=4,V=64,T=32",
};

Graph model(std::string_view shorthand) { return build_model(parse_shorthand(shorthand).value()).value(); }

}  // namespace

TEST_CASE("every order of a model's nodes gives the same training step, evaluation and serving step") {
  std::mt19937 random(3);
  size_t moved = 0;
  for (const std::string_view shorthand : kModels) {
    CAPTURE(shorthand);
    Graph forward = model(shorthand);
    const bool decodes = !shorthand.starts_with("encoder");
    const auto decoding = [&](const Graph& graph) {
      return make_serving(graph, {.pages = 2, .page_size = 8, .rows = 1, .context = 16, .cache = {}})
          .value()
          .fingerprint();
    };
    const uint64_t decoded = decodes ? decoding(forward) : 0;
    REQUIRE(add_token_loss(forward).ok());
    const uint64_t step = make_training_step(forward, {})->fingerprint(),
                   evaluation = make_evaluation(forward)->fingerprint(),
                   mixed = make_training_step(with_mixed_precision(forward, DType::kBF16).value(), {})
                               ->fingerprint();
    for (int trial = 0; trial < 8; ++trial) {
      const Graph other = test::reordered(forward, random, trial % 2 == 1).value();
      REQUIRE(other.verify().ok());
      moved += other.fingerprint() != forward.fingerprint();
      CHECK(make_training_step(other, {})->fingerprint() == step);
      CHECK(make_evaluation(other)->fingerprint() == evaluation);
      CHECK(make_training_step(with_mixed_precision(other, DType::kBF16).value(), {})->fingerprint() ==
            mixed);
      if (decodes) CHECK(decoding(other) == decoded);
      const Graph ordered = in_canonical_order(other).value();
      CHECK(ordered.verify().ok());
      CHECK(in_canonical_order(ordered)->fingerprint() == ordered.fingerprint());
    }
  }
  CHECK(moved == 40);
}

TEST_CASE("operands behind fewer layers come first, what is made of parameters right before its reader") {
  const Graph given = parse_graph(R"(graph {
    input x: f32[4, 4]
    parameter w: f32[4, 4]
    parameter v: f32[4, 4]
    narrow = cast(v) {dtype = "bf16"} : bf16[4, 4]
    side = exp(x) : f32[4, 4]
    wide = cast(narrow) {dtype = "f32"} : f32[4, 4]
    unread = neg(side) : f32[4, 4]
    deep = matmul(x, w) : f32[4, 4]
    deeper = matmul(deep, wide) : f32[4, 4]
    sum = add(deeper, side) : f32[4, 4]
    output sum = sum
  })")
                          .value();
  const Graph ordered = in_canonical_order(given).value();
  std::string names;
  for (const Tensor& tensor : ordered.tensors()) names += tensor.name + " ";
  CHECK(names == "x side w deep v narrow wide deeper sum unread ");
}

TEST_CASE("built models keep the order of their layers; a differentiated graph stays as it is") {
  for (const std::string_view shorthand : kModels) {
    CAPTURE(shorthand);
    const Graph given = model(shorthand), ordered = in_canonical_order(given).value();
    REQUIRE(ordered.nodes().size() == given.nodes().size());
    std::vector<std::string_view> blocks[2];
    for (const Graph* graph : {&given, &ordered})
      for (const Node& node : graph->nodes()) {
        auto& seen = blocks[graph == &ordered];
        if (seen.empty() || seen.back() != node.scope) seen.push_back(node.scope);
      }
    CHECK(blocks[0] == blocks[1]);
    const auto parameters = [](const Graph& graph) {
      std::vector<std::string> names;
      for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
        names.push_back(graph.tensor(id).name);
      return names;
    };
    CHECK(parameters(given) == parameters(ordered));
  }
  Graph forward = model(kModels[0]);
  REQUIRE(add_token_loss(forward).ok());
  const Graph step = make_training_step(forward, {}).value();
  CHECK(print(in_canonical_order(step).value()) == print(step));
}
