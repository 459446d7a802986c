
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "graph/graph_text.h"
#include "graph/models/model_family.h"
#include "graph/transform/precision.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

Graph with_loss(const char* shorthand, DType precision) {
  Graph forward = ok(build_model(ok(parse_shorthand(shorthand))));
  REQUIRE(add_token_loss(forward).ok());
  return precision == DType::kF32 ? forward : ok(with_mixed_precision(forward, precision));
}

int64_t count_op(const Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; });
}

int64_t without_forward(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [](const Node& node) {
    const bool is_backward = node.phase == Phase::kBackwardInput || node.phase == Phase::kBackwardWeight;
    return is_backward && node.forward == kNoNode;
  });
}

constexpr auto kModels = {"gpt2:L=2,C=32,H=4,V=65,T=16", "llama:L=2,C=32,H=4,KV=2,F=48,V=65,T=16",
                          "moe:L=2,C=32,H=4,KV=2,F=48,E=4,K=2,V=65,T=16"};

TEST_CASE("trained_parameters_are_bf16_and_gradients_and_state_stay_f32") {
  for (const char* model : kModels)
    for (const DType precision : {DType::kF32, DType::kBF16})
      for (const char* optimizer : {"adafactor", "adamw", "lion", "sgd"}) {
        CAPTURE(std::string(model));
        CAPTURE(to_text(precision));
        const Graph forward = with_loss(model, precision);
        TrainingOptions options;
        options.optimizer.name = optimizer;
        const Graph wide = ok(make_training_step(forward, options)), step = ok(with_bf16_parameters(wide));
        CHECK_MESSAGE(step.verify().ok(), step.verify().to_string());
        CHECK(ok(parse_graph(print(step))).fingerprint() == step.fingerprint());
        for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter))
          CHECK(step.type(id).dtype == DType::kBF16);
        for (const TensorId id : step.tensors_of_kind(TensorKind::kState))
          CHECK(step.type(id).dtype == DType::kF32);
        for (const Gradient& gradient : step.gradients())
          CHECK(step.type(gradient.gradient).dtype == DType::kF32);
        CHECK(step.updates().size() == wide.updates().size());
        CHECK(step.gradients().size() == wide.gradients().size());
        const size_t parameters = step.tensors_of_kind(TensorKind::kParameter).size();
        const std::string update = std::string(optimizer) + "_update";
        CHECK(count_op(step, update + "_stochastic") == static_cast<int64_t>(parameters));
        CHECK(count_op(step, update) == 0);
        // Each has random numbers of its own.
        std::set<int64_t> salts;
        for (const Node& node : step.nodes())
          if (node.phase == Phase::kUpdate && node.op->name == update + "_stochastic")
            salts.insert(attr_i64(node.attrs, "salt"));
        CHECK(salts.size() == parameters);
        // Nodes with a forward node keep it.
        CHECK(without_forward(step) == without_forward(wide));
        const Graph evaluation = ok(with_bf16_parameters(ok(make_evaluation(forward))));
        CHECK(evaluation.verify().ok());
        CHECK(!evaluation.find_tensor("seed"));
        for (const TensorId id : evaluation.tensors_of_kind(TensorKind::kParameter))
          CHECK(evaluation.type(id).dtype == DType::kBF16);
      }
}

TEST_CASE("in_mixed_precision_bf16_parameters_are_read_as_they_are") {
  const Graph wide =
      ok(make_training_step(with_loss("llama:L=1,C=32,H=4,KV=2,F=48,V=65,T=16", DType::kBF16), {}));
  const Graph step = ok(with_bf16_parameters(wide));
  for (const Node& node : step.nodes()) {
    if (node.op->name != "cast") continue;
    CHECK(step.tensor(node.inputs[0]).kind != TensorKind::kParameter);
  }
}

TEST_CASE("frozen_parameters_stay_as_they_are") {
  Graph forward = with_loss("llama:L=1,C=32,H=4,KV=2,F=48,V=65,T=16", DType::kF32);
  const TensorId table = *forward.find_tensor("token_embedding");
  forward.set_trainable(table, false);
  const Graph step = ok(with_bf16_parameters(ok(make_training_step(forward, {}))));
  for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter))
    CHECK(step.type(id).dtype == (step.tensor(id).name == "token_embedding" ? DType::kF32 : DType::kBF16));
}

TEST_CASE("an_input_seed_serves_dropout_and_rounding_and_anything_else_of_that_name_is_refused") {
  const Graph step = ok(with_bf16_parameters(
      ok(make_training_step(with_loss("gpt2:L=1,C=32,H=4,V=65,T=16,dropout=0.1", DType::kF32), {}))));
  CHECK(std::ranges::count_if(step.tensors(), [](const Tensor& t) { return t.name == "seed"; }) == 1);
  const Graph named = ok(parse_graph(R"(graph {
    input seed: f32[4]
    parameter w: f32[4]
    y = mul(seed, w)
    loss = reduce_sum(y) {axes = [0]}
    output loss = loss
  })"));
  const auto refused = with_bf16_parameters(ok(make_training_step(named, {})));
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("input 'seed' i64[]") != std::string::npos);
}

}  // namespace
}  // namespace tessera
