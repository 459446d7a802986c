// Planning operation by operation, on graphs of real operations: against every combination, by price and by
// the simulated time of the lowered program; and on larger graphs against an integer program.
#include "parallel/planner/operation_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "graph/base/text.h"
#include "parallel/pricing/cost_model.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/reshard.h"
#include "tests/full.h"
#include "tests/parallel/fake_catalog.h"
#include "tests/planner/decision_graphs.h"
#include "tests/planner/integer_program.h"
#include "tests/planner/operation_graphs.h"
#include "tests/skip.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

double combinations(const OperationSpace& space) {
  double count = 1;
  for (const auto& ways : space.decisions.nodes) count *= static_cast<double>(ways.size());
  return count;
}

// What a plan costs, from the plan alone: no table of the search is looked at.
double priced(const Graph& graph, const Plan& plan, const Cluster& cluster) {
  const DeviceMesh& mesh = plan.stages[0].mesh;
  const std::vector<int32_t> first(mesh.axes.size(), 0);
  Resharder resharder(mesh);
  std::vector<ShardingSpec> lies(graph.tensors().size());
  for (const StoredTensor& stored : plan.stored) lies[index(stored.tensor)] = stored.placements[0].stored;
  double seconds = 0;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const auto sharding = shard_node(graph, NodeId{static_cast<uint32_t>(n)}, plan.nodes[n], mesh);
    REQUIRE(sharding.ok());
    std::vector<TensorType> inputs, outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorType& type = graph.type(node.inputs[i]);
      inputs.push_back({type.dtype, local_shape(type.shape, sharding->inputs[i], mesh, first)});
      const auto path =
          resharder.path(lies[index(node.inputs[i])], sharding->inputs[i], type.shape, type.dtype);
      if (!path.ok()) return INFINITY;
      for (const Move& move : path->moves) {
        CollectiveInst it;
        it.dtype = type.dtype;
        if (move.kind == MoveKind::kSlice || move.kind == MoveKind::kPartialize) continue;
        it.kind = move.kind == MoveKind::kAllGather       ? CollectiveKind::kAllGather
                  : move.kind == MoveKind::kAllReduce     ? CollectiveKind::kAllReduce
                  : move.kind == MoveKind::kReduceScatter ? CollectiveKind::kReduceScatter
                                                          : CollectiveKind::kAllToAll;
        it.elements = std::max(local_shape(type.shape, move.before, mesh, first).elements(),
                               local_shape(type.shape, move.after, mesh, first).elements());
        int32_t members = 1;
        for (const AxisId axis : move.axes) members *= mesh.axis_size(axis);
        seconds += collective_seconds(it, members, cluster.link);
      }
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const TensorType& type = graph.type(node.outputs[o]);
      lies[index(node.outputs[o])] = sharding->outputs[o];
      outputs.push_back({type.dtype, local_shape(type.shape, sharding->outputs[o], mesh, first)});
    }
    const auto views = factor_views(*sharding, mesh, first);
    seconds += FakeCatalog().query(*node.op, {node.attrs, inputs, outputs, views})->seconds;
  }
  return seconds;
}

const char* mesh_for(unsigned draw) {
  constexpr const char* kMeshes[] = {"a=2", "a=2", "a=4", "a=8", "a=3", "a=2, b=2", "a=2, b=4"};
  return kMeshes[draw % std::size(kMeshes)];
}

}  // namespace

TEST_CASE("on random graphs of operations on 2 to 8 devices the plan is the best of all by price") {
  const int graphs = test::full() ? 300 : 75;
  std::mt19937 random(1);
  const FakeCatalog catalog;
  int compared = 0, limited = 0, split = 0;
  for (int trial = 0; compared < graphs; ++trial) {
    REQUIRE(trial < 3000);
    const DeviceMesh mesh = *parse_mesh(mesh_for(static_cast<unsigned>(random())));
    const Graph graph = random_operations(random, 1 + static_cast<int>(random() % 4), trial % 3 == 0);
    const Cluster cluster = small_cluster(mesh.size(), random() % 2 ? 1e10 : 1e9, 1e-7);
    const auto space = operation_space(graph, mesh, cluster, catalog);
    REQUIRE_MESSAGE(space.ok(), std::string(space.status().message()));
    if (combinations(*space) > 8000) continue;
    ++compared;
    double best = INFINITY, sum_bytes = 0, count = 0;
    std::vector<Tradeoff> all;
    for_each_combination(space->decisions, [&](const std::vector<int32_t>& ways) {
      const Tradeoff cost = price(space->decisions, ways);
      if (!std::isfinite(cost.time_s)) return;
      all.push_back(cost);
      sum_bytes += static_cast<double>(cost.bytes), ++count;
      if (random() % 997 == 0)
        CHECK(priced(graph, plan_of(*space, graph, ways), cluster) ==
              doctest::Approx(cost.time_s).epsilon(1e-12));
    });
    const int64_t budget = trial % 2 ? INT64_MAX : static_cast<int64_t>(sum_bytes / count * 0.7);
    double free = INFINITY;
    for (const Tradeoff& cost : all) {
      free = std::min(free, cost.time_s);
      if (cost.bytes <= budget) best = std::min(best, cost.time_s);
    }
    const auto found = plan_operations(graph, mesh, cluster, catalog, budget);
    REQUIRE(found.ok() == std::isfinite(best));
    if (!found.ok()) continue;
    limited += best > free;
    CHECK(found->proved);
    CHECK(found->seconds == doctest::Approx(best).epsilon(1e-12));
    CHECK(found->bytes <= budget);
    CHECK(priced(graph, found->plan, cluster) == doctest::Approx(best).epsilon(1e-12));
    for (const NodePlan& node : found->plan.nodes) split += !node.factor_axes.empty();
  }
  MESSAGE(compared, " graphs, ", limited, " slower for their budget, ", split, " operations split");
  CHECK(limited > graphs / 10);
  CHECK(split > graphs * 2 / 3);
}

TEST_CASE(
    "on random graphs of operations the plan is the best of all by the simulated time of its program") {
  const int graphs = test::full() ? 300 : 60;
  std::mt19937 random(2);
  const FakeCatalog catalog;
  int compared = 0, fewer = 0, differ = 0;
  int64_t plans = 0, simulated = 0;
  for (int trial = 0; compared < graphs; ++trial) {
    REQUIRE(trial < 5000);
    const DeviceMesh mesh = *parse_mesh(mesh_for(static_cast<unsigned>(random())));
    const Graph graph = random_operations(random, 1 + static_cast<int>(random() % 3), trial % 5 == 0);
    const Cluster cluster = small_cluster(mesh.size(), random() % 2 ? 1e10 : 2e9, 1e-7);
    const auto space = operation_space(graph, mesh, cluster, catalog);
    REQUIRE(space.ok());
    if (combinations(*space) > 250) continue;
    ++compared;
    double best = INFINITY;
    for_each_combination(space->decisions, [&](const std::vector<int32_t>& ways) {
      const auto seconds = simulated_seconds(graph, plan_of(*space, graph, ways), cluster, catalog);
      if (seconds.ok()) best = std::min(best, *seconds);
      ++plans;
    });
    const auto found = plan_operations_simulated(graph, mesh, cluster, catalog, INT64_MAX);
    REQUIRE(found.ok());
    CHECK(found->seconds == best);
    CHECK(found->gap < 1e-2);  // simulated times are whole nanoseconds, bounds allow for one an instruction
    CHECK(*simulated_seconds(graph, found->plan, cluster, catalog) == best);
    simulated += found->simulated;
    fewer += found->simulated < found->plans;
    const auto by_price = plan_operations(graph, mesh, cluster, catalog, INT64_MAX);
    differ += *simulated_seconds(graph, by_price->plan, cluster, catalog) > best * (1 + 1e-9);
  }
  MESSAGE(plans, " plans, of which the search simulated ", simulated, "; on ", differ,
          " graphs the best by price is not the best by simulation");
  CHECK(fewer > graphs / 3);
}

TEST_CASE("on graphs of 20 to 60 real operations the plan is that of an integer program") {
  if (!cbc_is_installed()) {
    test::skip("no `cbc` here (package coinor-cbc; ./dev test installs it)");
    return;
  }
  std::mt19937 random(3);
  const FakeCatalog catalog;
  for (const int operations : {20, 40, 60}) {
    const DeviceMesh mesh = *parse_mesh("a=8");
    const Graph graph = random_operations(random, operations, false);
    const Cluster cluster = small_cluster(8, 4e9, 1e-7);
    const auto space = operation_space(graph, mesh, cluster, catalog);
    REQUIRE(space.ok());
    DecisionGraph micro = space->decisions;  // in microseconds: CBC's tolerances are absolute
    const auto scale = [](Tradeoff& cost) { cost.time_s *= 1e6; };
    for (auto& ways : micro.nodes) std::ranges::for_each(ways, scale);
    for (DecisionEdge& edge : micro.edges) std::ranges::for_each(edge.costs, scale);
    const auto free = best_decision(micro, INT64_MAX);
    REQUIRE(free.ok());
    const auto refused = best_decision(micro, 0);
    REQUIRE(!refused.ok());
    const std::string said(refused.status().message());
    const int64_t least = std::stoll(said.substr(said.rfind(' ')));
    // CBC takes minutes for memory on the largest.
    for (const int64_t budget : {INT64_MAX, least + (free->decision.bytes - least) * 3 / 10}) {
      if (budget != INT64_MAX && operations > 40) continue;
      const auto found = best_decision(micro, budget);
      const IntegerProgram wanted = solve_with_cbc(micro, budget);
      REQUIRE(found.ok() == wanted.feasible);
      if (!found.ok()) continue;
      CHECK(found->proved);
      CHECK(found->decision.time_s == doctest::Approx(wanted.time_s).epsilon(1e-6));
      MESSAGE(operations, " operations, ", micro.nodes.size(), " decisions: ", found->decision.time_s,
              " us, ", found->decision.bytes, " bytes");
    }
  }
}

TEST_CASE("a plan of 60 operations with branches lowers, and its program is as fast as it was priced") {
  std::mt19937 random(4);
  const FakeCatalog catalog;
  const Graph graph = random_operations(random, 60, false);
  for (const char* words : {"a=8", "a=2, b=4"}) {
    const DeviceMesh mesh = *parse_mesh(words);
    const Cluster cluster = small_cluster(8, 4e9, 1e-7);
    const auto start = std::chrono::steady_clock::now();
    const auto found = plan_operations(graph, mesh, cluster, catalog, INT64_MAX);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
    CHECK(found->proved);
    const auto run = simulated_seconds(graph, found->plan, cluster, catalog);
    REQUIRE_MESSAGE(run.ok(), std::string(run.status().message()));
    MESSAGE(std::string(words), ": planned in ", seconds, " s; ", 1e6 * found->seconds, " us priced, ",
            1e6 * *run, " us simulated");
    const auto tight = plan_operations(graph, mesh, cluster, catalog, found->bytes * 6 / 10);
    if (tight.ok()) CHECK(tight->seconds >= found->seconds * (1 - 1e-12));
  }
}
