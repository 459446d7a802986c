// with_fused_loss: what is replaced, what is refused, and what the step then computes.

#include <doctest/doctest.h>

#include <algorithm>

#include "graph/analysis/graph_profile.h"
#include "graph/models/model_family.h"
#include "graph/transform/fusion.h"
#include "graph/transform/label_margins.h"
#include "graph/transform/precision.h"
#include "graph/transform/preference_loss.h"
#include "graph/transform/token_loss.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

Graph with_loss(std::string_view shorthand) {
  Graph graph = ok(build_model(ok(parse_shorthand(shorthand))));
  REQUIRE(add_token_loss(graph).ok());
  return graph;
}

int count(const Graph& graph, std::string_view op) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; }));
}

// Largest extent of the last dim among activations of the rank of logits.
int64_t widest(const Graph& graph) {
  int64_t most = 0;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.kind == TensorKind::kActivation && tensor.type.shape.rank() == 3)
      most = std::max(most, tensor.type.shape[2]);
  return most;
}

Graph bound(const Graph& graph) {
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"B", 3}, {"T", 8}};
  return ok(graph.bind(symbols));
}

constexpr std::string_view kGpt2 = "gpt2:L=1,C=8,H=2,V=97,T=8";

}  // namespace

TEST_CASE("a training step with a fused loss has no logits, and loss and gradient are one node") {
  const Graph fused = ok(with_fused_loss(with_loss(kGpt2)));
  const Graph step = ok(make_training_step(fused, {}));
  CHECK(count(step, "linear_cross_entropy_grad") == 1);
  CHECK(count(step, "linear_cross_entropy") == 0);
  CHECK(count(step, "row_max") == 0);
  CHECK(widest(step) < 97);
  CHECK(widest(ok(make_training_step(with_loss(kGpt2), {}))) == 97);
  for (const Node& node : step.nodes())
    if (node.op->name == "linear_cross_entropy_grad") CHECK(node.phase == Phase::kForward);
  const Graph evaluation = ok(make_evaluation(fused));
  CHECK(count(evaluation, "linear_cross_entropy") == 1);
  CHECK(widest(evaluation) < 97);
}

TEST_CASE("a fused loss takes the three products of head and loss apart") {
  const auto flops = [](const Graph& step) { return ok(profile_graph(bound(step))).total().flops; };
  const double unfused = flops(ok(make_training_step(with_loss(kGpt2), {})));
  const double fused = flops(ok(make_training_step(ok(with_fused_loss(with_loss(kGpt2))), {})));
  const double matmul_flops = 2.0 * 3 * 8 * 8 * 97;
  CHECK(std::abs(fused - unfused) < matmul_flops / 4);  // besides, some operations a logit
}

TEST_CASE("in mixed precision a fused loss takes the head in bf16 and gives an f32 loss") {
  const Graph mixed = ok(with_mixed_precision(ok(with_fused_loss(with_loss(kGpt2))), DType::kBF16));
  const Graph step = ok(make_training_step(mixed, {}));
  for (const Node& node : step.nodes()) {
    if (node.op->name != "linear_cross_entropy_grad") continue;
    CHECK(step.type(node.inputs[1]).dtype == DType::kBF16);
    CHECK(step.type(node.outputs[0]).dtype == DType::kBF16);
    CHECK(step.type(node.outputs[1]).dtype == DType::kF32);
  }
  CHECK(count(step, "linear_cross_entropy_grad") == 1);
}

TEST_CASE("a model's auxiliary loss stays with a fused one") {
  const std::string_view moe = "moe:L=1,C=8,H=2,KV=2,F=12,E=4,V=97,T=8";
  const Graph step = ok(make_training_step(ok(with_fused_loss(with_loss(moe))), {}));
  CHECK(count(step, "linear_cross_entropy_grad") == 1);
  CHECK(count(step, "linear_cross_entropy") == 0);
  CHECK(count(step, "moe_fraction") == count(ok(make_training_step(with_loss(moe), {})), "moe_fraction"));
}

TEST_CASE("a loss that is scaled before it is differentiated is still fused with its gradient") {
  Graph graph = ok(with_fused_loss(with_loss(kGpt2)));
  const TensorId loss = *graph.find_output("loss");
  const TensorId factor = ok(graph.add_tensor("factor", graph.type(loss), TensorKind::kInput));
  const TensorId large = ok(graph.add("scale_by", {loss, factor}));
  REQUIRE(graph.add_output("loss", large).ok());
  const Graph step = ok(make_training_step(graph, {}));
  CHECK(count(step, "linear_cross_entropy") == 0);
  CHECK(count(step, "linear_cross_entropy_grad") == 1);
}

TEST_CASE("a fused loss in f16 takes the factor of its scaling with the gradient that arrives") {
  TrainingOptions options;
  options.loss_scaling.initial = 1024;
  const Graph mixed = ok(with_mixed_precision(ok(with_fused_loss(with_loss(kGpt2))), DType::kF16));
  const Graph step = ok(make_training_step(mixed, options));
  CHECK(count(step, "linear_cross_entropy") == 0);
  REQUIRE(count(step, "linear_cross_entropy_grad") == 1);
  const TensorId offset = *step.find_tensor("loss_scaling.offset");
  bool before = false;
  for (const Node& node : step.nodes()) {
    if (node.op->name == "loss_scaling" && node.inputs[0] == offset) before = true;
    if (node.op->name == "linear_cross_entropy_grad") CHECK(before);
  }
}

TEST_CASE("a loss whose gradient is made from the loss itself is computed before it") {
  Graph graph = ok(with_fused_loss(with_loss(kGpt2)));
  const TensorId squared = ok(graph.add("square", {*graph.find_output("loss")}));
  REQUIRE(graph.add_output("loss", squared).ok());
  const Graph step = ok(make_training_step(graph, {}));
  CHECK(count(step, "linear_cross_entropy") == 1);
  CHECK(count(step, "linear_cross_entropy_grad") == 1);
}

TEST_CASE(
    "losses that read each token hold no logits where they are fused, in forward, step and accumulation") {
  const auto fused_of = [](const auto& add) {
    Graph graph = ok(build_model(ok(parse_shorthand(kGpt2))));
    REQUIRE(add(graph).ok());
    return ok(with_fused_loss(graph));
  };
  const auto check = [](const Graph& graph, int gradients) {
    CHECK(count(graph, "linear_token_losses") == 1);
    CHECK(count(graph, "linear_token_losses_grad") == gradients);
    CHECK(count(graph, "row_max") == 0);
    CHECK(widest(graph) < 97);
  };
  for (const PreferenceLoss loss : {PreferenceLoss::kDpo, PreferenceLoss::kOrpo, PreferenceLoss::kKto}) {
    const Graph fused = fused_of([&](Graph& graph) { return add_preference_loss(graph, {.loss = loss}); });
    check(ok(make_training_step(fused, {})), 1);
    check(ok(make_accumulation(fused, {})), 1);
    check(ok(make_evaluation(fused)), 0);
  }
  for (const TokenLoss loss : all_token_losses()) {
    const Graph fused = fused_of([&](Graph& graph) { return add_accumulated_loss(graph, loss); });
    check(ok(make_accumulation(fused, {})), 1);
    check(ok(make_forward(fused)), 0);
  }
  const Graph weighted = fused_of([](Graph& graph) { return add_token_loss(graph, true); });
  check(ok(make_training_step(weighted, {})), 1);
  const Graph margins = ok(with_label_margins(ok(make_evaluation(weighted))));
  CHECK(count(margins, "linear_token_losses_finish") == 1);
  CHECK(widest(margins) < 97);
}

TEST_CASE("a head with a bias and a graph without a token loss are refused with the reason") {
  const auto refused = [](const Graph& graph) { return with_fused_loss(graph).status(); };
  const Status bias = refused(with_loss("encoder:L=1,C=8,H=2,V=97,T=8"));
  CHECK(bias.code() == StatusCode::kUnsupported);
  CHECK(bias.message().find("bias") != std::string_view::npos);
  const Status none = refused(ok(build_model(ok(parse_shorthand(kGpt2)))));
  CHECK(none.code() == StatusCode::kUnsupported);
  CHECK(none.message().find("add_token_loss") != std::string_view::npos);
}
