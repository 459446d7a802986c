// Frozen parameters change the plan for devices at hand.
#include <doctest/doctest.h>

#include "parallel/planner/planner.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

// Only the queries' and values' weights train, as under adapters.
Graph step_of(bool frozen) {
  Graph forward = build_model(*parse_shorthand("gpt2:L=2,C=64,H=4,V=512,T=32")).value();
  REQUIRE(add_token_loss(forward).ok());
  if (frozen)
    for (const TensorId id : forward.tensors_of_kind(TensorKind::kParameter)) {
      const std::string& name = forward.tensor(id).name;
      if (name.find(".q.") == std::string::npos && name.find(".v.") == std::string::npos)
        forward.set_trainable(id, false);
    }
  return make_training_step(forward, TrainingOptions{}).value();
}

}  // namespace

TEST_CASE("on devices at hand a frozen graph fits in a faster way than the trained one") {
  const Cluster cluster = fake_cluster(4, {5e9, 5e-6}, 1e11);
  const Graph full = step_of(false), frozen = step_of(true);
  PlanOptions options;
  options.global_batch = 4;
  options.symbols = {{"T", 32}};
  const auto bytes_of = [&](const Graph& graph, std::string_view parallel) {
    PlanOptions pinned = options;
    pinned.parallel = parallel;
    const auto plan = make_plan(graph, cluster, FakeCatalog(), pinned);
    REQUIRE_MESSAGE(plan.ok(), std::string(plan.status().message()));
    return plan->candidates.front().arena_bytes;
  };
  const int64_t trained = bytes_of(full, "dp=4"), left = bytes_of(frozen, "dp=4");
  CHECK(left < trained / 2);
  options.memory_limit = (trained + left) / 2;
  const auto a = make_plan(full, cluster, FakeCatalog(), options),
             b = make_plan(frozen, cluster, FakeCatalog(), options);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  const std::string one = a->candidates.front().strategy, other = b->candidates.front().strategy;
  MESSAGE(one, " becomes ", other);
  CHECK(one != other);
  CHECK(b->candidates.front().step_time_s < a->candidates.front().step_time_s);
}
