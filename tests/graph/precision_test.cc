#include "graph/transform/precision.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "graph/graph_text.h"
#include "graph/models/model_family.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

int64_t casts_to(const Graph& graph, DType dtype) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) {
    return node.op->name == "cast" && graph.tensor(node.outputs[0]).type.dtype == dtype;
  });
}

TEST_CASE("mixed_precision_casts_a_parameter_for_each_reader_and_leaves_statistics_in_f32") {
  const Graph forward = ok(parse_graph(R"(graph {
    symbol B
    input ids: i32[B]
    parameter table: f32[7, 4]
    e = embedding(table, ids)
    logits = matmul(e, table) {trans_w = 1}
    m = row_max(logits)
    output logits = logits
    output m = m
  })"));
  const Graph mixed = ok(with_mixed_precision(forward, DType::kBF16));
  CHECK(casts_to(mixed, DType::kBF16) == 2);  // a pipeline may have them in two stages
  const auto type = [&](std::string_view name) { return mixed.tensor(*mixed.find_tensor(name)).type.dtype; };
  CHECK(type("table") == DType::kF32);
  CHECK(type("e") == DType::kBF16);
  CHECK(type("logits") == DType::kBF16);
  CHECK(type("m") == DType::kF32);
  CHECK(!with_mixed_precision(forward, DType::kF64).ok());
}

TEST_CASE("models_in_mixed_precision_train_f32_parameters_with_f32_gradients_and_an_f32_loss") {
  for (const char* shorthand : {"gpt2:L=2,C=32,H=4,V=65,T=16", "llama:L=2,C=32,H=4,KV=2,F=48,V=65,T=16",
                                "moe:L=2,C=32,H=4,KV=2,F=48,E=4,K=2,V=65,T=16"}) {
    CAPTURE(shorthand);
    const auto config = parse_shorthand(shorthand);
    if (!config.ok()) continue;  // a family of another name; the first two are there
    Graph forward = ok(build_model(*config));
    REQUIRE(add_token_loss(forward).ok());
    const Graph mixed = ok(with_mixed_precision(forward, DType::kBF16));
    CHECK_MESSAGE(mixed.verify().ok(), mixed.verify().to_string());
    TrainingOptions options;
    options.optimizer.name = "adamw";
    const Graph step = ok(make_training_step(mixed, options));
    CHECK_MESSAGE(step.verify().ok(), step.verify().to_string());
    CHECK(step.tensor(*step.find_output("loss")).type.dtype == DType::kF32);
    for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter))
      CHECK(step.tensor(id).type.dtype == DType::kF32);
    for (const TensorId id : step.tensors_of_kind(TensorKind::kState)) {
      const Tensor& state = step.tensor(id);
      CHECK_MESSAGE(state.type.dtype == DType::kF32, state.name);
    }
    int64_t matmuls = 0, bf16_matmuls = 0;
    for (const Node& node : step.nodes()) {
      if (!node.op->name.starts_with("matmul") && !node.op->name.starts_with("attention")) continue;
      ++matmuls;
      bf16_matmuls += step.tensor(node.inputs[0]).type.dtype == DType::kBF16;
    }
    CHECK(matmuls > 0);
    CHECK(bf16_matmuls == matmuls);
  }
}

}  // namespace
}  // namespace tessera
