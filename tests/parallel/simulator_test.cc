// Lowered programs on paper: what overlaps, what it saves, and that the same comes out every time.
#include "parallel/pricing/simulator.h"

#include <doctest/doctest.h>

#include "parallel/pricing/cost_model.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

Cluster slow_links() { return fake_cluster(0, {1e9, 1e-6}, 1e12); }

Program lowered(std::string_view parallel) {
  const Result<Graph> step = training_step("gpt2:L=2,C=64,H=4,V=128,T=32");
  REQUIRE(step.ok());
  Result<Program> program = program_of(*step, parallel, 8, 32);
  if (!program.ok()) MESSAGE(program.status().to_string());
  REQUIRE(program.ok());
  return std::move(program).value();
}

}  // namespace

TEST_CASE("on one device the simulated step is the sum of its instructions") {
  const Program program = lowered("dp=1");
  const Result<Simulation> simulation = simulate(program, "train_step", slow_links());
  REQUIRE(simulation.ok());
  const Price all = price(program.ranks[0], "train_step", slow_links(), 1);
  CHECK(simulation->seconds() == doctest::Approx(all.total_s()).epsilon(1e-3));
}

TEST_CASE("gradient reductions overlap the backward pass") {
  const Program program = lowered("dp=2");
  const Result<Simulation> simulation = simulate(program, "train_step", slow_links());
  REQUIRE(simulation.ok());
  const Price all = price(program.ranks[0], "train_step", slow_links(), 2);
  CHECK(simulation->seconds() < all.total_s());
  CHECK(simulation->seconds() >= all.compute_s * 0.999);
  const Result<Simulation> in_order = simulate(program, "train_step", slow_links(),
                                               {.streams = StreamOptions{.inline_below_bytes = INT64_MAX}});
  REQUIRE(in_order.ok());
  CHECK(in_order->seconds() == doctest::Approx(all.total_s()).epsilon(1e-2));
}

TEST_CASE("a simulated trace has every instruction once, streams in order, and is the same every time") {
  const Program program = lowered("dp=2,zero=3");
  const Result<Simulation> simulation = simulate(program, "train_step", slow_links());
  REQUIRE(simulation.ok());
  const std::vector<TraceEvent> events = trace_of(program, *simulation);
  size_t instructions = 0;
  for (const RankProgram& rank : program.ranks) instructions += rank.entries[0].code.size();
  CHECK(events.size() == instructions);
  bool has_collectives = false;
  for (size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].begin_ns >= 0);
    CHECK(events[i].end_ns >= events[i].begin_ns);
    has_collectives |= events[i].stream == "collectives";
    if (i > 0 && events[i].rank == events[i - 1].rank && events[i].track == events[i - 1].track)
      CHECK(events[i].begin_ns >= events[i - 1].end_ns);
  }
  CHECK(has_collectives);
  const Result<Simulation> again = simulate(program, "train_step", slow_links());
  REQUIRE(again.ok());
  CHECK(again->run.end_ns == simulation->run.end_ns);
}

TEST_CASE("an entry that does not exist is not simulated") {
  CHECK(simulate(lowered("dp=1"), "eval", slow_links()).status().code() == StatusCode::kNotFound);
}
