// Pins of single decisions: what they do to a plan, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>

#include "parallel/planner/planner.h"
#include "parallel/strategy/apply_pins.h"
#include "tests/fake_cluster.h"
#include "tests/number_after.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

Cluster devices(int32_t count, int64_t memory_bytes = int64_t{1} << 40) {
  Cluster cluster = fake_cluster(count, {1e9, 1e-6}, 1e12);
  cluster.kinds[0].memory_bytes = memory_bytes;
  return cluster;
}

Graph step(int layers = 4) {
  Result<Graph> graph = training_step("gpt2:L=" + std::to_string(layers) + ",C=64,H=4,V=128,T=32");
  REQUIRE(graph.ok());
  return std::move(graph).value();
}

Result<PlanResult> planned(const Graph& graph, int32_t count, std::string parallel, PlanPins pins,
                           int64_t limit = 0, bool advise = false) {
  PlanOptions options;
  options.advise = advise;
  options.global_batch = 8;
  options.symbols = {{"T", 32}};
  options.parallel = std::move(parallel);
  options.pins = std::move(pins);
  options.memory_limit = limit;
  return make_plan(graph, devices(count), FakeCatalog(), options);
}

const StoredTensor& stored(const Graph& graph, const Plan& plan, std::string_view name) {
  const auto id = graph.find_tensor(name);
  REQUIRE(id);
  const StoredTensor* it = plan.find_stored(*id);
  REQUIRE(it != nullptr);
  return *it;
}

}  // namespace

TEST_CASE("a pinned stored spec is in the plan, and the rest is as it was") {
  const Graph graph = step();
  const auto plain = planned(graph, 2, "tp=2", {});
  REQUIRE(plain.ok());
  PlanPins pins;
  pins.stored = {{"block.*.fc.weight", "{[], [tp]}"}};
  const auto pinned = planned(graph, 2, "tp=2", pins);
  if (!pinned.ok()) MESSAGE(pinned.status().to_string());
  REQUIRE(pinned.ok());
  const DeviceMesh& mesh = pinned->plan.stages[0].mesh;
  for (int block = 0; block < 4; ++block) {
    const std::string name = "block." + std::to_string(block) + ".fc.weight";
    CHECK(to_text(stored(graph, pinned->plan, name).placements[0].stored, mesh) == "{[], [tp]}");
    CHECK(to_text(stored(graph, plain->plan, name).placements[0].stored, mesh) != "{[], [tp]}");
  }
  CHECK(stored(graph, pinned->plan, "block.0.q.weight") == stored(graph, plain->plan, "block.0.q.weight"));
}

TEST_CASE("a pinned operation is split so, and lowering inserts the reshards") {
  const Graph graph = step();
  PlanPins pins;
  pins.ops = {{"block.1.fc.weight", "whole"}};
  const auto pinned = planned(graph, 2, "tp=2", pins);
  if (!pinned.ok()) MESSAGE(pinned.status().to_string());
  REQUIRE(pinned.ok());
  const TensorId weight = *graph.find_tensor("block.1.fc.weight");
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    if (graph.nodes()[n].phase == Phase::kForward && std::ranges::count(graph.nodes()[n].inputs, weight) > 0)
      CHECK(pinned->plan.nodes[n].factor_axes.empty());
}

TEST_CASE("what is pinned to be kept is never computed again") {
  const Graph graph = step();
  const auto plain = planned(graph, 1, "recompute=full", {});
  REQUIRE(plain.ok());
  PlanPins pins;
  pins.keep = {"block.*.attention"};
  const auto pinned = planned(graph, 1, "recompute=full", pins);
  REQUIRE(pinned.ok());
  CHECK(!pinned->plan.recompute.empty());
  CHECK(pinned->plan.recompute.size() < plain->plan.recompute.size());
  for (const TensorId id : pinned->plan.recompute)
    CHECK(graph.node(graph.tensor(id).producer).scope.find(".attention") == std::string::npos);
}

TEST_CASE("a pinned stage cut is where the second stage begins") {
  const Graph graph = step();
  for (const int first : {1, 3}) {
    PlanPins pins;
    pins.stages = {"block." + std::to_string(first)};
    const auto pinned = planned(graph, 2, "pp=2,mb=2", pins);
    if (!pinned.ok()) MESSAGE(pinned.status().to_string());
    REQUIRE(pinned.ok());
    for (int block = 0; block < 4; ++block)
      CHECK(stored(graph, pinned->plan, "block." + std::to_string(block) + ".q.weight").placements[0].mesh ==
            (block < first ? 0 : 1));
  }
}

TEST_CASE("pins that cannot be had are refused with the reason") {
  const Graph graph = step();
  const auto message = [&](PlanPins pins) {
    const auto refused = planned(graph, 2, "tp=2", std::move(pins));
    REQUIRE(!refused.ok());
    return std::string(refused.status().message());
  };
  const auto stored_as = [](std::string name, std::string spec) {
    PlanPins pins;
    pins.stored = {{std::move(name), std::move(spec)}};
    return pins;
  };
  const auto split_as = [](std::string factors) {
    PlanPins pins;
    pins.ops = {{"block.0.fc.weight", std::move(factors)}};
    return pins;
  };
  CHECK(message(stored_as("block.0.fc.wieght", "{[], []}")).find("block.0.fc.weight") != std::string::npos);
  CHECK(message(stored_as("block.0.fc.weight", "{[pp], []}")).find("pp") != std::string::npos);
  CHECK(message(split_as("z over tp")).find("no factor 'z'") != std::string::npos);
  CHECK(message(split_as("n over moon")).find("no axis 'moon'") != std::string::npos);
  PlanPins stages, keep;
  stages.stages = {"block.2"};
  CHECK(message(stages).find("2 stages") != std::string::npos);
  keep.keep = {"blok.2"};
  CHECK(message(keep).find("not in the graph") != std::string::npos);
}

TEST_CASE("where nothing fits, the limit and the number of devices named are the smallest that do") {
  const Graph graph = step(1);
  // Below what two devices hold with everything spread and offloaded.
  constexpr int64_t kLimit = 60'000;
  const auto refused = planned(graph, 2, "", {}, kLimit, true);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == StatusCode::kOutOfMemory);
  const std::string message(refused.status().message());
  CAPTURE(message);
  // The largest buffers at the instruction of the peak.
  CHECK(message.find("instruction ") != std::string::npos);
  const size_t open = message.find(" bytes)");
  REQUIRE(open != std::string::npos);
  const int64_t limit = std::stoll(message.substr(message.rfind('(', open) + 1));
  const auto at_limit = planned(graph, 2, "", {}, limit);
  if (!at_limit.ok()) MESSAGE(at_limit.status().to_string());
  REQUIRE(at_limit.ok());
  CHECK(!planned(graph, 2, "", {}, limit - 1).ok());
  const auto count = static_cast<int32_t>(test::number_after(message, "devices that would do is "));
  CHECK(count > 2);
  CHECK(planned(graph, count, "", {}, kLimit).ok());
  CHECK(!planned(graph, count - 1, "", {}, kLimit).ok());
}
