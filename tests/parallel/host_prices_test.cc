// What lies in a host's memory costs its link, copied or read where it is; where there is no link it is the
// device's own memory.
#include <doctest/doctest.h>

#include "parallel/pricing/cost_model.h"

using namespace tessera;

namespace {

constexpr int64_t kCount = 1 << 20, kBytes = 4 * kCount;
constexpr double kKernelSeconds = 1e-6, kLatency = 2e-6, kRate = 1e9;

// z = x + y, in the tiers given.
RankProgram sum_in(Tier x, Tier y, Tier z) {
  RankProgram program;
  for (const Tier tier : {x, y, z}) program.slots.push_back({"", SlotKind::kTransient, tier, kBytes, 0});
  KernelDesc add;
  add.op = find_op("add");
  const TensorType type{DType::kF32, Shape{kCount}};
  add.inputs = {type, type};
  add.outputs = {type};
  add.seconds = kKernelSeconds;
  program.kernels.push_back(add);
  KernelInst launch;
  launch.kernel = 0;
  launch.inputs = {{0, 0}, {1, 0}};
  launch.outputs = {{2, 0}};
  program.entries.push_back({"main", {launch, CopyInst{{0, 0}, {2, 0}, 1, kBytes}}, {}, {}});
  return program;
}

Cluster cluster_with(Link host_link) {
  Cluster cluster;
  cluster.kinds.push_back({.name = "fake", .memory_bytes_per_s = 4e9});
  cluster.devices = {0};
  cluster.host_link = host_link;
  return cluster;
}

}  // namespace

TEST_CASE("kernels and copies wait for the link to the host, each direction by itself") {
  constexpr Tier kDevice = Tier::kDevice, kHost = Tier::kHost;
  const Cluster linked = cluster_with({kRate, kLatency}), own = cluster_with({});
  const auto prices = [](const RankProgram& program, const Cluster& cluster) {
    const auto all = prices_of(program, program.entries[0], cluster);
    for (size_t at = 0; at < all.size(); ++at)
      CHECK(price_of(program, program.entries[0].code[at], cluster).alone_s == all[at].alone_s);
    return std::pair(all[0].alone_s, all[1].alone_s);
  };
  const double once = kLatency + kBytes / kRate, twice = kLatency + 2 * kBytes / kRate;
  const double within = 2 * kBytes / 4e9;
  CHECK(prices(sum_in(kDevice, kDevice, kDevice), linked) == std::pair(kKernelSeconds, within));
  CHECK(prices(sum_in(kHost, kDevice, kDevice), linked) == std::pair(once, once));
  CHECK(prices(sum_in(kHost, kHost, kDevice), linked) == std::pair(twice, once));
  // To the host while from it.
  CHECK(prices(sum_in(kHost, kDevice, kHost), linked) == std::pair(once, within));
  CHECK(prices(sum_in(kHost, kHost, kHost), own) == std::pair(kKernelSeconds, within));
}
