// Ranks that share cores: the event replay against the plain one, and against what no machine can beat.
#include "parallel/pricing/shared_replay.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "graph/device_profile.h"
#include "parallel/pricing/simulator.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

Cluster machine(int32_t cores) {
  Cluster cluster = fake_cluster(0, {1e9, 1e-6}, 1e12);
  cluster.shared_cores = cores;
  return cluster;
}

Program lowered(std::string_view parallel) {
  const Result<Graph> step = training_step("gpt2:L=4,C=64,H=4,V=128,T=32");
  REQUIRE(step.ok());
  Result<Program> program = program_of(*step, parallel, 8, 32);
  if (!program.ok()) MESSAGE(program.status().to_string());
  REQUIRE(program.ok());
  return std::move(program).value();
}

constexpr std::string_view kForms[] = {"dp=2,zero=3", "tp=2", "dp=2,tp=2", "pp=2:1f1b,mb=1",
                                       "pp=4:gpipe,mb=2"};

std::vector<std::vector<InstructionPrice>> prices_of_all(const Program& program, const Cluster& cluster) {
  std::vector<std::vector<InstructionPrice>> prices;
  for (const RankProgram& rank : program.ranks) prices.push_back(prices_of(rank, rank.entries[0], cluster));
  return prices;
}

}  // namespace

TEST_CASE("where devices share nothing the event replay finds the times of the plain one") {
  for (const std::string_view form : kForms) {
    CAPTURE(form);
    const Program program = lowered(form);
    const Cluster cluster = machine(0);
    const Result<Simulation> plain = simulate(program, "train_step", cluster);
    REQUIRE(plain.ok());
    const Result<Replay> shared =
        replay_shared(program, 0, plain->dependencies, prices_of_all(program, cluster), cluster);
    REQUIRE(shared.ok());
    // The plain replay rounds every duration to a nanosecond, this one the sums.
    const auto slack = static_cast<int64_t>(program.ranks[0].entries[0].code.size());
    CHECK(std::abs(shared->end_ns - plain->run.end_ns) <= slack);
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      for (size_t i = 0; i < shared->ranks[rank].size(); ++i)
        CHECK(std::abs(shared->ranks[rank][i].end_ns - plain->run.ranks[rank][i].end_ns) <= slack);
  }
}

TEST_CASE("no step beats its work on all cores, nor that of devices which share nothing") {
  for (const std::string_view form : kForms) {
    for (const int32_t cores : {1, 2, 3}) {
      CAPTURE(form);
      const Program program = lowered(form);
      const Cluster cluster = machine(cores);
      double all = 0;
      for (const auto& rank : prices_of_all(program, cluster))
        for (const InstructionPrice& price : rank) all += machine_share_bound(price, cluster);
      const Result<Simulation> simulation = simulate(program, "train_step", cluster);
      REQUIRE(simulation.ok());
      CHECK(simulation->seconds() >= 0.999 * all);
      // Nor does sharing ever help.
      const Result<Simulation> apart = simulate(program, "train_step", machine(0));
      REQUIRE(apart.ok());
      CHECK(simulation->seconds() >= 0.999 * apart->seconds());
      const Result<Simulation> always =
          simulate(program, "train_step", cluster,
                   {.streams = {}, .busy_ranks = 2 * static_cast<int32_t>(program.ranks.size())});
      REQUIRE(always.ok());
      CHECK(simulation->seconds() <= 1.001 * always->seconds());
    }
  }
}

TEST_CASE("a stage that waits leaves its core to the others") {
  const Program program = lowered("pp=2:gpipe,mb=8");  // one micro-batch: never two stages at work
  const Result<Simulation> shared = simulate(program, "train_step", machine(1));
  const Result<Simulation> apart = simulate(program, "train_step", machine(0));
  REQUIRE((shared.ok() && apart.ok()));
  CHECK(shared->seconds() < 1.25 * apart->seconds());  // updates of both stages do run at once
}

TEST_CASE("idle ranks take no time from those that work") {
  Program program = lowered("");
  Cluster cluster = machine(2);
  auto profile = std::make_shared<DeviceProfile>();
  profile->cores = 2;
  profile->contention = profile->oversubscription = 1.5;
  cluster.profile = profile;
  const double alone = simulate(program, "train_step", cluster).value().seconds();
  RankProgram idle;
  idle.entries.push_back({"train_step", {}, {}, {}});
  program.ranks.resize(4, idle);
  CHECK(simulate(program, "train_step", cluster).value().seconds() == alone);
}

TEST_CASE("what ranks lose to each other comes on top, with more than there are cores the most") {
  Cluster cluster = machine(4);
  auto profile = std::make_shared<DeviceProfile>();
  profile->cores = 4;
  profile->contention = 1.25;
  profile->oversubscription = 1.5;
  const InstructionPrice price{1, 2};
  const double all = seconds_at(price, cluster, 4);
  cluster.profile = profile;
  CHECK(seconds_at(price, cluster, 1, 1) == doctest::Approx(1));
  CHECK(seconds_at(price, cluster, 1, 2) == doctest::Approx(1.25));
  CHECK(seconds_at(price, cluster, 4, 4) == doctest::Approx(1.25 * all));
  CHECK(seconds_at(price, cluster, 1, 5) == doctest::Approx(1.5));
  CHECK(seconds_at(price, cluster, 8, 8) == doctest::Approx(1.5 * 2 * all));
}

TEST_CASE("a stream that waited for another begins one hand-over later") {
  const Program program = lowered("pp=2:1f1b,mb=8");  // one micro-batch: stages take turns
  const auto with = [&](double stream_switch_s) {
    Cluster cluster = machine(4);
    auto profile = std::make_shared<DeviceProfile>();  // no tables: kernels keep the catalog's seconds
    profile->stream_switch_s = profile->busy_stream_switch_s = stream_switch_s;
    cluster.profile = profile;
    return simulate(program, "train_step", cluster)->seconds();
  };
  const double without = with(0), late = with(1e-3);
  // Activations one way and their gradients the other: each is received on a stream of its own and then
  // taken by one that waits.
  CHECK(late >= without + 2e-3);
  CHECK(late <= without + 20e-3);
}

TEST_CASE("speed between one busy device and all cores busy goes in equal steps, and is shared beyond") {
  Cluster cluster = machine(4);
  const InstructionPrice price{1, 2};  // four at once take twice as long: twice the speed in all
  CHECK(seconds_at(price, cluster, 1) == doctest::Approx(1));
  CHECK(seconds_at(price, cluster, 4) == doctest::Approx(2));
  CHECK(2 / seconds_at(price, cluster, 2) == doctest::Approx(1 + 1.0 / 3));
  CHECK(seconds_at(price, cluster, 8) == doctest::Approx(4));
  cluster.shared_cores = 0;
  CHECK(seconds_at(price, cluster, 8) == 1);
}
