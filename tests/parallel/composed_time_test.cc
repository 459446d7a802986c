// What a composed step's seconds are made of beyond its passes: messages to the very peers, what ends share, copies, gathers of
// the first micro-batch, and a host that issues kernels slower than the device runs them.
#include "parallel/composition/composed_time.h"

#include <doctest/doctest.h>

#include <cmath>

#include "graph/transform/fewer_blocks.h"
#include "parallel/composition/strategy_profile.h"
#include "parallel/pricing/link_time.h"
#include "parallel/pricing/simulator.h"
#include "tests/fake_cluster.h"
#include "tests/ok.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;
using test::ok;

TEST_CASE("composed steps: messages by the link between stages, shared parameters, copies, first gathers") {
  Cluster cluster = fake_cluster(8, {1e9, 0}, 1e12);
  cluster.node_devices = 4;
  cluster.network = {1e8, 1e-3};
  StepProfile profile;
  profile.map.blocks = 2;
  profile.passes.resize(4);
  profile.copies.assign(4, 0);
  profile.copying_s.assign(4, 0);
  for (auto& block : profile.passes)
    for (auto& turn : block) turn[0].seconds = 1, turn[1].seconds = 2;
  profile.devices = 4;
  ComposedStages stages;
  stages.shape = {ScheduleKind::kGpipe, 2, 1, 1};
  stages.blocks = {{{0, 0}, {1, 0}}, {{2, 0}, {3, 0}}};
  const auto seconds = [&] { return ok(composed_time(std::span(&profile, 1), stages, cluster)).step_s; };
  constexpr double kPasses = 12;  // three a block, none concurrent
  CHECK(seconds() == doctest::Approx(kPasses));
  profile.forward_message = profile.backward_message = 1 << 20;
  const double crossing = send_seconds(cluster, 4, 1 << 20), inside = send_seconds(cluster, 1, 1 << 20);
  REQUIRE(crossing > 10 * inside);
  CHECK(seconds() == doctest::Approx(kPasses + 2 * crossing));
  profile.devices = 2;
  CHECK(seconds() == doctest::Approx(kPasses + 2 * inside));
  profile.persistent.push_back({.bytes = 1 << 20, .blocks = {0, 3}});
  CHECK(seconds() == doctest::Approx(kPasses + 4 * inside));
  profile.copying_s = {0.5, 0, 0, 0.25};  // concurrent
  CHECK(seconds() == doctest::Approx(kPasses + 4 * inside + 0.5));
  stages.shape.micro_batches = 2;
  const double two = seconds();
  profile.passes[0][0][0].seconds +=
      0.75;  // the first stage's first pass, then the second's, which waits for it
  CHECK(seconds() == doctest::Approx(two + 0.75));
  profile.passes[2][0][0].seconds += 0.75;
  CHECK(seconds() == doctest::Approx(two + 0.75));
}

TEST_CASE("a host that issues kernels one by one sets the pace of passes") {
  FewerBlocks few = ok(with_fewer_blocks(ok(forward_graph("gpt2:L=2,C=32,H=2,V=64,T=16"))));
  const Graph step = ok(training_step_of(std::move(few.graph)));
  Cluster cluster = fake_cluster(1, {}, 1e12);
  const auto pass = [&](double issue_s, BlockPass which) {
    cluster.kinds[0].issue_s = issue_s;
    const StrategySpec spec = ok(parse_parallel("mb=4")).spec;
    return ok(profile_strategy(step, spec, 4, {{"T", 16}}, cluster, FakeCatalog()))
        .cost(1, Turn::kLast, which)
        .seconds;
  };
  for (const BlockPass which : {BlockPass::kForward, BlockPass::kBackward}) {
    const double kernels = pass(1, which);
    CHECK(kernels > 10);
    CHECK(pass(0, which) == pass(1e-9, which));
    CHECK(pass(2, which) == doctest::Approx(2 * kernels));
  }
  CHECK(pass(1, BlockPass::kForward) == std::round(pass(1, BlockPass::kForward)));
  // The whole program simulated: as long as its host takes to issue it, and the last kernel.
  const Program program = ok(program_of(step, "mb=4", 4, 16));
  double kernels = 0;
  for (const Instruction& instruction : program.ranks[0].entries[0].code)
    kernels += std::holds_alternative<KernelInst>(instruction);
  cluster.kinds[0].issue_s = 1;
  CHECK(ok(simulate(program, "train_step", cluster)).seconds() == doctest::Approx(kernels).epsilon(1e-4));
}
