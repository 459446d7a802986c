
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/graph_text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/precision.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

Graph model(const char* shorthand, DType compute = DType::kF32) {
  Graph forward = ok(build_model(ok(parse_shorthand(shorthand))));
  REQUIRE(add_token_loss(forward).ok());
  return compute == DType::kF32 ? forward : ok(with_mixed_precision(forward, compute));
}

Graph step_of(const Graph& forward) {
  TrainingOptions options;
  options.fp8_matmuls = true;
  return ok(make_training_step(forward, options));
}

std::map<std::string, int> ops_of(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) ++counts[std::string(node.op->name)];
  return counts;
}

DType dtype(const Graph& graph, TensorId id) { return graph.type(id).dtype; }

TEST_CASE("linear_layers_of_blocks_multiply_e4m3_forward_and_e5m2_gradients_backward") {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    CAPTURE(to_text(compute));
    const Graph step = step_of(model("gpt2:L=2,C=32,H=4,V=64,T=16", compute));
    CHECK_MESSAGE(step.verify().ok(), step.verify().to_string());
    auto ops = ops_of(step);
    // q, k, v, o, fc, proj of two blocks: forward, dx, dw. The tied head stays.
    CHECK(ops["scaled_matmul"] == 2 * 6 * 2);
    CHECK(ops["scaled_matmul_weight_grad"] == 2 * 6);
    CHECK(ops["matmul"] == 2);
    CHECK(ops["matmul_weight_grad"] == 1);
    // Forward: one for each weight, and for q, k and v together, o, fc, proj; backward: one for each dy.
    CHECK(ops["quantize"] == 2 * (6 + 4 + 6));
    CHECK(ops["quantize_scale"] == ops["quantize"]);
    for (const Node& node : step.nodes()) {
      const bool is_weight_grad = node.op->name == "scaled_matmul_weight_grad";
      if (node.op->name == "scaled_matmul") {
        CHECK(dtype(step, node.inputs[0]) == (node.phase == Phase::kForward ? DType::kE4M3 : DType::kE5M2));
        CHECK(dtype(step, node.inputs[1]) == DType::kE4M3);
        CHECK(dtype(step, node.outputs[0]) == compute);
        CHECK(node.phase != Phase::kBackwardWeight);
      }
      if (is_weight_grad) {
        CHECK(dtype(step, node.inputs[0]) == DType::kE4M3);
        CHECK(dtype(step, node.inputs[1]) == DType::kE5M2);
        CHECK(dtype(step, node.outputs[0]) == DType::kF32);
        CHECK(node.phase == Phase::kBackwardWeight);
      }
      if (node.op->name.starts_with("scaled_matmul") && node.phase != Phase::kForward) {
        REQUIRE(node.forward != kNoNode);
        CHECK(step.node(node.forward).op->name == "scaled_matmul");
      }
      // From the f32 parameter itself, rounded once.
      if (node.op->name == "quantize" && node.phase == Phase::kForward &&
          step.tensor(node.inputs[0]).producer == kNoNode)
        CHECK(dtype(step, node.inputs[0]) == DType::kF32);
    }
    for (const Gradient& gradient : step.gradients()) CHECK(dtype(step, gradient.gradient) == DType::kF32);
  }
}

TEST_CASE("an_evaluation_multiplies_what_the_step_multiplies") {
  const Graph evaluation = ok(make_evaluation(model("llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16"), true));
  CHECK(ops_of(evaluation)["scaled_matmul"] == 2 * 7);
  CHECK(ops_of(evaluation)["matmul"] == 1);
}

TEST_CASE("routers_adapters_and_weights_of_other_extents_stay_as_they_are") {
  const Graph experts = step_of(model("moe:L=1,C=64,H=4,KV=2,F=48,E=16,K=2,V=64,T=16"));
  for (const Node& node : experts.nodes())
    if (node.op->name.starts_with("scaled_matmul") && node.phase == Phase::kForward)
      CHECK(experts.tensor(node.outputs[0]).type.shape[2] != 16);  // the router's experts
  Graph base = ok(build_model(ok(parse_shorthand("gpt2:L=1,C=32,H=4,V=64,T=16"))));
  Graph adapted = ok(with_adapters(base, adaptable_weights(base), {16, 16}));
  REQUIRE(add_token_loss(adapted).ok());
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const Graph step = step_of(compute == DType::kF32 ? adapted : ok(with_mixed_precision(adapted, compute)));
    CHECK(ops_of(step)["scaled_matmul_weight_grad"] == 0);  // the rest is frozen
    CHECK(ops_of(step)["scaled_matmul"] > 0);
    CHECK(ops_of(step)["matmul"] > 6 * 2);
  }
  const auto refused = with_fp8_matmuls(model("gpt2:L=1,C=24,H=4,F=56,V=64,T=16"));
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("multiples of 16") != std::string::npos);
}

TEST_CASE("an_activation_that_rode_along_follows_a_product_in_8_bits") {
  const Graph forward = ok(parse_graph(R"(graph {
    input x: f32[4, 16]
    parameter w: f32[32, 16]
    parameter b: f32[32]
    y, pre = matmul(x, w, b) {trans_w = 1, activation = "gelu"} @scope "block.0"
    s = reduce_sum(y) {axes = [0, 1]}
    output loss = s
  })"));
  const Graph step = step_of(forward);
  CHECK(ops_of(step)["gelu"] == 1);
  CHECK(ops_of(step)["gelu_grad"] == 1);
  CHECK(ops_of(step)["scaled_matmul"] == 1);  // x wants no gradient
  CHECK(ops_of(step)["scaled_matmul_weight_grad"] == 1);
}

}  // namespace
}  // namespace tessera
