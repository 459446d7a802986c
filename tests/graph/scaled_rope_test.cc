// Rope by factors of its frequencies, as models with long contexts have it: such graphs train, in any precision.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "graph/autodiff.h"
#include "graph/transform/precision.h"
#include "graph/transform/shared_angles.h"
#include "tests/float_type_graph.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

// A quarter of each head turns.
Graph scaled_rope(const std::string& factors) {
  return ok(parse_graph(
      "graph {\n  input p: i32[2, 3]\n  parameter x: f32[2, 3, 1, 8]\n  parameter factors: f32[1, 1]" +
      factors +
      "\n  a = rope_angles(p, factors) {head_size = 2, magnitude = 1.5} : f64[2, 3, 2]\n"
      "  y = rope_rotate(x, a) : f32[2, 3, 1, 8]\n"
      "  loss = reduce_sum(y) {axes = [0, 1, 2, 3]} : f32[]\n  output loss = loss\n}"));
}

const Node* find(const Graph& graph, std::string_view op) {
  const auto at = std::ranges::find(graph.nodes(), op, [](const Node& node) { return node.op->name; });
  return at == graph.nodes().end() ? nullptr : &*at;
}

}  // namespace

TEST_CASE("frozen factors of rope stay f32 in mixed precision and take no gradient") {
  Graph graph = ok(with_mixed_precision(scaled_rope(" frozen"), DType::kBF16));
  const Node* angles = find(graph, "rope_angles");
  REQUIRE(angles != nullptr);
  CHECK(graph.type(angles->inputs[1]).dtype == DType::kF32);
  CHECK(graph.type(find(graph, "rope_rotate")->outputs[0]).dtype == DType::kBF16);
  CHECK(differentiate(graph, *graph.find_output("loss")).ok());
  CHECK(graph.gradients().size() == 1);
  CHECK(ok(with_shared_angles(graph)).verify().ok());

  Graph wide = ok(with_float_type(scaled_rope(" frozen"), DType::kF64));
  CHECK(wide.verify().ok());
}

TEST_CASE("factors of rope that would train are refused") {
  Graph graph = scaled_rope("");
  const Status status = differentiate(graph, *graph.find_output("loss"));
  CHECK(status.code() == StatusCode::kFailedPrecondition);
  CHECK(status.message().find("freeze") != std::string::npos);
}
