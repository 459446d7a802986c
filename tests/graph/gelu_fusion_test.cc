// with_fused_gelu_gradients: what becomes one node, and what stays.

#include <doctest/doctest.h>

#include <algorithm>

#include "graph/autodiff.h"
#include "graph/models/model_family.h"
#include "graph/transform/fusion.h"
#include "graph/transform/precision.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

int count(const Graph& graph, std::string_view op) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; }));
}

Graph step_of(std::string_view shorthand, bool in_products, DType dtype = DType::kF32) {
  Graph graph = ok(build_model(ok(parse_shorthand(shorthand))));
  REQUIRE(add_token_loss(graph).ok());
  if (dtype != DType::kF32) graph = ok(with_mixed_precision(graph, dtype));
  TrainingOptions options;
  options.fused_gelu_gradients = in_products;
  return ok(make_training_step(graph, options));
}

constexpr std::string_view kGpt2 = "gpt2:L=3,C=8,H=2,V=37,T=8";

// `a` is made of h, the loss of a and y.
Graph differentiated(const std::string& a, const std::string& loss) {
  Graph graph =
      ok(parse_graph("graph {\n  input x: f32[4, 8]\n  parameter w1: f32[8, 16]\n"
                     "  parameter w2: f32[16, 8]\n  parameter p: f32[4, 16]\n"
                     "  h = matmul(x, w1) : f32[4, 16]\n" +
                     a + "  y = matmul(a, w2) : f32[4, 8]\n" + loss + "}"));
  REQUIRE(differentiate(graph, *graph.find_output("loss")).ok());
  return graph;
}
const std::string kGelu = "  a = gelu(h) : f32[4, 16]\n";
const std::string kLoss = "  loss = reduce_sum(y) {axes = [0, 1]} : f32[]\n  output loss = loss\n";

}  // namespace

TEST_CASE("every gelu of a GPT-2 is differentiated in the product that its gradient comes from") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Graph unfused = step_of(kGpt2, false, dtype), fused = step_of(kGpt2, true, dtype);
    CHECK(count(unfused, "gelu_grad") == 3);
    CHECK(count(fused, "gelu_grad") == 0);
    CHECK(count(fused, "matmul_gelu_grad") == 3);
    CHECK(count(fused, "matmul") == count(unfused, "matmul") - 3);
    CHECK(fused.nodes().size() == unfused.nodes().size() - 3);
    CHECK(fused.updates().size() == unfused.updates().size());
    for (const Node& node : fused.nodes()) {
      if (node.op->name != "matmul_gelu_grad") continue;
      CHECK(node.phase == Phase::kBackwardInput);
      CHECK(fused.node(node.forward).op->name == "matmul");
      CHECK(fused.node(node.forward).scope == node.scope);
    }
  }
}

TEST_CASE("the exact form of gelu, and a product that is read besides or not alone, stay apart") {
  const Graph one = ok(with_fused_gelu_gradients(differentiated(kGelu, kLoss)));
  CHECK(count(one, "matmul_gelu_grad") == 1);
  for (const Graph& kept :
       {differentiated("  a = gelu(h) {approximate = \"none\"} : f32[4, 16]\n", kLoss),
        differentiated("  a = silu(h) : f32[4, 16]\n", kLoss),
        // Read as the gradient of a parameter, too.
        differentiated("  g = gelu(h) : f32[4, 16]\n  a = add(g, p) : f32[4, 16]\n", kLoss),
        // Added to by another reader of the activation.
        differentiated(kGelu,
                       "  z = square(a) : f32[4, 16]\n  s = reduce_sum(z) {axes = [0, 1]} : f32[]\n"
                       "  t = reduce_sum(y) {axes = [0, 1]} : f32[]\n  loss = add(s, t) : f32[]\n"
                       "  output loss = loss\n")}) {
    const Graph same = ok(with_fused_gelu_gradients(kept));
    CHECK(count(same, "matmul_gelu_grad") == 0);
    CHECK(same.fingerprint() == kept.fingerprint());
  }
}
