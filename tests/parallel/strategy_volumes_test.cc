// Elements that one linear sends, forward and backward, under every form of tensor parallelism and of sharded
// data: against the sharding algebra's table and its fixtures, exactly.
#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "tests/parallel/step_graphs.h"
#include "tests/parallel/volumes.h"

using namespace tessera;

namespace {

// x -> relu -> X W -> relu, half the sum of squares of that, and backward down to x and W. The functions
// around the product read and make its operands in the layout in which activations are stored, so that what
// is counted is the product's own.
Graph linear_step(int64_t k, int64_t n) {
  Graph graph;
  const int64_t b = graph.symbol("B");
  const TensorId x = *graph.add_tensor("x", {DType::kF32, {b, k}}, TensorKind::kInput);
  const TensorId w = *graph.add_tensor("w", {DType::kF32, {k, n}}, TensorKind::kParameter);
  const TensorId h = *graph.add("relu", {x});
  const NodeId matmul{static_cast<uint32_t>(graph.nodes().size())};
  const TensorId y = *graph.add("matmul", {h, w});
  const TensorId a = *graph.add("relu", {y});
  graph.set_phase(Phase::kBackwardInput, NodeId{2});
  const TensorId da = *graph.add("relu_grad", {a, a});
  graph.set_phase(Phase::kBackwardInput, matmul);
  const TensorId dh = *graph.add("matmul", {da, w}, {{"trans_w", int64_t{1}}});
  graph.set_phase(Phase::kBackwardWeight, matmul);
  const TensorId dw = *graph.add("matmul_weight_grad", {h, da});
  graph.set_phase(Phase::kBackwardInput, NodeId{0});
  const TensorId dx = *graph.add("relu_grad", {h, dh});
  graph.add_gradient(w, dw);
  graph.set_phase(Phase::kUpdate);
  const TensorId stepped = *graph.add("sub", {w, dw});
  graph.add_update(w, stepped);
  REQUIRE(graph.add_output("a", a).ok());
  REQUIRE(graph.add_output("dx", dx).ok());
  return graph;
}

double elements(std::string_view parallel, int64_t m, int64_t k, int64_t n) {
  CAPTURE(parallel);
  const Graph graph = linear_step(k, n);
  REQUIRE_MESSAGE(graph.verify().ok(), graph.verify().to_string());
  const auto pins = parse_parallel(parallel);
  REQUIRE_MESSAGE(pins.ok(), pins.status().to_string());
  const auto plan = apply_strategy(graph, pins->spec, m);
  REQUIRE_MESSAGE(plan.ok(), plan.status().to_string());
  const EntrySpec entry{"step", &graph, &*plan};
  const auto program = lower(std::span(&entry, 1), FakeCatalog());
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  const auto sent = count_sent(*program);
  std::string all(parallel);
  for (const auto& [name, it] : sent) all += format(", {} {}", name, it.bytes / 4);
  INFO(all);
  return total_bytes(sent) / 4;
}

}  // namespace

TEST_CASE("one linear sends what the table says, gathered again") {
  CHECK(elements("tp=4", 24, 36, 48) == 5184);
  CHECK(elements("dp=4", 24, 36, 48) == 10368);
  CHECK(elements("dp=4,zero=3", 24, 36, 48) == 15552);
  CHECK(elements("dp=6,zero=3:3", 24, 36, 48) == 24192);
  CHECK(elements("tp=2d:2x2", 24, 36, 48) == 7776);
  CHECK(elements("tp=2d:2x3", 24, 36, 48) == 10368);
  CHECK(elements("tp=2.5d:2x2x2", 24, 36, 48) == 16416);
  CHECK(elements("tp=3d:2x2x2", 24, 36, 48) == 10080);
}

TEST_CASE("one linear sends what the table says, kept") {
  CHECK(elements("dp=4,zero=3,keep", 24, 36, 48) == 10368);
  CHECK(elements("tp=2d:2x2,keep", 24, 36, 48) == 5184);
  CHECK(elements("tp=2d:2x3,keep", 24, 36, 48) == 2 * (2 * 864 + 1728));
  CHECK(elements("tp=2.5d:2x2x2,keep", 24, 36, 48) == 12096);
  CHECK(elements("tp=3d:2x2x2,keep", 24, 36, 48) == 7488);
  CHECK(elements("dp=4,zero=3,keep", 11, 13, 17) == 1326);
}

TEST_CASE("one linear under owt moves the smaller of weight and operand") {
  CHECK(elements("dp=4,owt", 24, 36, 48) == 3 * 3 * 24 * 36);  // 2 (N-1) S_W = 10368 would be more
  CHECK(elements("dp=4,owt,keep", 24, 36, 48) == 2 * 3 * 24 * 36);
  CHECK(elements("dp=4,owt", 96, 36, 48) == 10368);
}

TEST_CASE("chunks of one linear send the same in all") {
  for (const int g : {1, 2, 3, 5, 8})
    for (const std::string_view form : {"dp=4,zero=3", "tp=2d:2x3", "tp=2.5d:2x2x2", "tp=3d:2x2x2"}) {
      const std::string words = format("{},chunks={}", form, g);
      CHECK(elements(words, 24, 36, 48) == doctest::Approx(elements(form, 24, 36, 48)).epsilon(1e-12));
      CHECK(elements(words, 11, 13, 17) == doctest::Approx(elements(form, 11, 13, 17)).epsilon(1e-12));
    }
}

// S_X = 143, S_W = 221, S_Y = 187.
TEST_CASE("uneven shards of one linear send the same formulas") {
  CHECK(elements("tp=2d:2x3", 11, 13, 17) == 1521);
  CHECK(elements("tp=2.5d:2x2x2", 11, 13, 17) == 2197);
  CHECK(elements("tp=3d:2x2x2", 11, 13, 17) == 3 * (143 + 221) + 2 * 187);
  CHECK(elements("dp=4,zero=3", 11, 13, 17) == 3 * 3 * 221);
}
