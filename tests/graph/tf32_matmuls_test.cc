#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "graph/base/tf32.h"
#include "graph/models/model_family.h"
#include "graph/transform/fusion.h"
#include "graph/transform/precision.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

Graph model(const char* shorthand) {
  Graph forward = ok(build_model(ok(parse_shorthand(shorthand))));
  REQUIRE(add_token_loss(forward).ok());
  return forward;
}

bool allows(const Node& node) {
  const auto found = std::ranges::find(node.attrs, "allow_tf32", &Attr::name);
  return found != node.attrs.end() && found->value == AttrValue(int64_t{1});
}

// Nodes that allow TF32, by op, and those that could and do not.
std::map<std::string, int> allowing(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) {
    if (allows(node)) ++counts[std::string(node.op->name)];
    if (!allows(node) && std::ranges::find(node.attrs, "allow_tf32", &Attr::name) != node.attrs.end())
      ++counts["not " + std::string(node.op->name)];
  }
  return counts;
}

TEST_CASE("a_number_is_rounded_to_10_bits_of_mantissa_ties_to_even") {
  CHECK(tf32_from_f32(1 + 0x1p-10f) == 1 + 0x1p-10f);
  CHECK(tf32_from_f32(1 + 0x1p-11f) == 1);                       // a tie: down, to the even
  CHECK(tf32_from_f32(1 + 0x1p-10f + 0x1p-11f) == 1 + 0x1p-9f);  // a tie: up, to the even
  CHECK(tf32_from_f32(1 + 0x1p-11f + 0x1p-20f) == 1 + 0x1p-10f);
  CHECK(tf32_from_f32(2 - 0x1p-12f) == 2);  // into the exponent
  CHECK(tf32_from_f32(-3 - 0x1p-11f) == -3);
  CHECK(std::signbit(tf32_from_f32(-0.0f)));
  CHECK(tf32_from_f32(0x1p-149f) == 0);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(tf32_from_f32(infinity) == infinity);
  CHECK(tf32_from_f32(-std::numeric_limits<float>::max()) == -infinity);
  CHECK(std::isnan(tf32_from_f32(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(tf32_from_f32(std::bit_cast<float>(0x7f800001u))));  // whose bits would all be dropped
  for (uint32_t bits = 1; bits < 0x7f000000; bits += 7919 * 13) {
    const float x = std::bit_cast<float>(bits), rounded = tf32_from_f32(x);
    REQUIRE(tf32_from_f32(rounded) == rounded);
    if (bits >= 0x00800000) REQUIRE(std::fabs(rounded - x) <= 0x1p-11f * x);
  }
}

TEST_CASE("products_of_a_model_and_of_its_step_allow_tf32_where_that_is_asked_and_only_there") {
  const Graph forward = model("gpt2:L=2,C=32,H=4,V=64,T=16");
  const Graph plain = ok(make_training_step(forward, {})),
              step = ok(make_training_step(ok(with_tf32_matmuls(forward)), {}));
  CHECK_MESSAGE(step.verify().ok(), step.verify().to_string());
  // q, k, v, o, fc, proj of two blocks, and the head: forward and the gradient of x; and of w.
  CHECK(allowing(plain) == std::map<std::string, int>{{"not matmul", 26}, {"not matmul_weight_grad", 13}});
  CHECK(allowing(step) == std::map<std::string, int>{{"matmul", 26}, {"matmul_weight_grad", 13}});
  // The same graph in all else, and after differentiation too.
  CHECK(plain.nodes().size() == step.nodes().size());
  CHECK(plain.fingerprint() != step.fingerprint());
  CHECK(ok(with_tf32_matmuls(plain)).fingerprint() == step.fingerprint());
}

TEST_CASE("experts_and_fused_losses_allow_tf32_forward_and_backward") {
  const Graph experts =
      ok(make_training_step(ok(with_tf32_matmuls(model("moe:L=1,C=32,H=4,F=32,E=4,K=2,V=64,T=16"))), {}));
  auto counts = allowing(experts);
  CHECK(counts["expert_matmul"] > 0);
  CHECK(counts["expert_matmul_weight_grad"] * 2 == counts["expert_matmul"]);
  for (const auto& [op, count] : counts) CHECK_MESSAGE(!op.starts_with("not "), op);
  // The order of both does not matter.
  const Graph forward = model("gpt2:L=1,C=32,H=4,V=64,T=16");
  const Graph fused = ok(with_tf32_matmuls(ok(with_fused_loss(forward)))),
              after = ok(with_fused_loss(ok(with_tf32_matmuls(forward))));
  CHECK(fused.fingerprint() == after.fingerprint());
  counts = allowing(ok(make_training_step(fused, {})));
  CHECK(counts["linear_cross_entropy_grad"] == 1);
  for (const auto& [op, count] : counts) CHECK_MESSAGE(!op.starts_with("not "), op);
}

TEST_CASE("a_graph_without_a_product_of_f32_says_that_tf32_is_nothing_for_it") {
  Graph graph;
  const TensorId x = ok(graph.add_tensor("x", {DType::kBF16, {4, 4}}, TensorKind::kInput));
  REQUIRE(graph.add("matmul", {x, x}).ok());
  const auto refused = with_tf32_matmuls(graph);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("use another precision") != std::string::npos);
  const auto wrong = graph.add("matmul", {x, x}, {{"allow_tf32", int64_t{2}}});
  REQUIRE(!wrong.ok());
  CHECK(wrong.status().message().find("allow_tf32 is 2, wanted 0 or 1") != std::string::npos);
}

}  // namespace
}  // namespace tessera
