// Collectives and messages take the links that their ranks have: inside a node, or between nodes.
#include "parallel/pricing/link_time.h"

#include <doctest/doctest.h>

#include "parallel/pricing/cost_model.h"
#include "parallel/pricing/simulator.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

constexpr double kInside = 100e9, kNetwork = 8e9, kInsideLatency = 1e-6, kNetworkLatency = 10e-6;

// Nodes of two devices; the network's rate is shared by them.
Cluster two_nodes() {
  Cluster cluster = fake_cluster(4, {kInside, kInsideLatency}, 1e12);
  cluster.node_devices = 2;
  cluster.network = {kNetwork, kNetworkLatency};
  return cluster;
}

double seconds_of(const Cluster& cluster, CollectiveKind kind, std::vector<int32_t> ranks, int64_t floats) {
  RankProgram program;
  program.groups.push_back({std::move(ranks), 0, "dp"});
  CollectiveInst inst;
  inst.kind = kind, inst.group = 0, inst.elements = floats;
  return price_of(program, inst, cluster).alone_s;
}

}  // namespace

TEST_CASE("a group inside a node goes by its link, one over two nodes by the network that they share") {
  const Cluster cluster = two_nodes();
  constexpr int64_t kFloats = 1 << 20;
  const double bytes = 4.0 * kFloats;
  CHECK(seconds_of(cluster, CollectiveKind::kAllReduce, {0, 1}, kFloats) ==
        doctest::Approx(2 * kInsideLatency + bytes / kInside));
  CHECK(seconds_of(cluster, CollectiveKind::kAllGather, {2, 3}, kFloats) ==
        doctest::Approx(kInsideLatency + bytes / 2 / kInside));
  // One device of each node: half of a node's network, along a tree; a gather is half a ring.
  CHECK(seconds_of(cluster, CollectiveKind::kAllReduce, {0, 2}, kFloats) ==
        doctest::Approx(2 * kNetworkLatency + bytes / (kNetwork / 2)));
  CHECK(seconds_of(cluster, CollectiveKind::kReduceScatter, {1, 3}, kFloats) ==
        doctest::Approx(kNetworkLatency + bytes / 2 / (kNetwork / 2)));
  // All four: the ring inside and the network at its whole rate.
  CHECK(seconds_of(cluster, CollectiveKind::kAllGather, {0, 1, 2, 3}, kFloats) ==
        doctest::Approx(kInsideLatency + kNetworkLatency + 0.75 * bytes / kNetwork));
  // Measured links of groups count by their size.
  Cluster measured = cluster;
  measured.node_links = {{2, {50e9, 30e-6}}};
  CHECK(seconds_of(measured, CollectiveKind::kAllReduce, {0, 1}, kFloats) ==
        doctest::Approx(30e-6 + bytes / 50e9));
}

TEST_CASE("a message to another node goes by the network") {
  const Cluster cluster = two_nodes();
  RankProgram program;
  SendInst send;
  send.bytes = 1 << 20;
  const auto seconds = [&](int32_t from, int32_t to) {
    send.peer = to;
    return price_of(program, send, cluster, from).alone_s;
  };
  const double inside = kInsideLatency + (1 << 20) / kInside;
  CHECK(seconds(0, 1) == doctest::Approx(inside));
  CHECK(seconds(3, 2) == doctest::Approx(inside));
  CHECK(seconds(1, 2) == doctest::Approx(kNetworkLatency + (1 << 20) / (kNetwork / 2)));
  RecvInst recv;
  recv.bytes = 1 << 20, recv.peer = 1;
  CHECK(price_of(program, recv, cluster, 2).alone_s == seconds(1, 2));
}

TEST_CASE("what is split between nodes takes longer than what is split inside them") {
  const Result<Graph> step = training_step("gpt2:L=2,C=64,H=4,V=128,T=32");
  REQUIRE(step.ok());
  const auto simulated = [&](const char* words, const Cluster& cluster) {
    const Result<Program> program = program_of(*step, words, 8, 32);
    REQUIRE_MESSAGE(program.ok(), program.status().to_string());
    return simulate(*program, "train_step", cluster)->seconds();
  };
  Cluster nodes = two_nodes();
  nodes.network = {1e8, 1e-4};
  Cluster one = nodes;
  one.node_devices = 0;
  // Tensor-parallel ranks are neighbours: with tp=2 they share a node, with tp=4 they do not.
  CHECK(simulated("tp=2", nodes) == simulated("tp=2", one));
  CHECK(simulated("tp=4", nodes) > 1.5 * simulated("tp=4", one));
  CHECK(simulated("dp=2,tp=2", nodes) > simulated("dp=2,tp=2", one));
  CHECK(simulated("pp=2,tp=2", nodes) > simulated("pp=2,tp=2", one));
}
