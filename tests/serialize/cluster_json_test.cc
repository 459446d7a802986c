#include "serialize/cluster_json.h"

#include <doctest/doctest.h>

using namespace tessera;

namespace {

Cluster example() {
  Cluster cluster;
  DeviceKind big;
  big.name = "big", big.memory_bytes = int64_t{80} << 30, big.matmul_flops_per_s = 17e12;
  big.memory_bytes_per_s = 1.1e12 / 3, big.launch_s = 9e-6,
  big.matrix_rates = {{DType::kF16, 280e12}, {DType::kE4M3, 433.5e12}};
  big.multiprocessors = 108, big.tile_ramp = 125.5, big.batched_share = 0.45, big.issue_s = 4.2e-5;
  DeviceKind small = big;
  small.name = "small", small.reserved_bytes = int64_t{1} << 30;
  cluster.kinds = {big, small};
  cluster.devices = {0, 0, 1, 1, 1, 0};
  cluster.node_devices = 2;
  cluster.link = {1e9, 1e-6};
  cluster.node_links = {{2, {197e9, 4.5e-5}}, {4, {222e9, 5.5e-5}}};
  cluster.network = {100e9, 1e-5};
  cluster.host_memory_bytes = int64_t{1} << 40;
  cluster.host_link = {22e9, 1e-5};
  return cluster;
}

std::string refusal(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  text.replace(at, what.size(), with);
  const auto cluster = cluster_from_json(text);
  return cluster.ok() ? "" : std::string(cluster.status().message());
}

}  // namespace

TEST_CASE("a cluster read back from JSON is the cluster written") {
  const auto back = cluster_from_json(cluster_to_json(example()));
  REQUIRE_MESSAGE(back.ok(), std::string(back.status().message()));
  CHECK(*back == example());
  // Every rate of a kind is optional.
  std::string without = cluster_to_json(example());
  for (size_t at; (at = without.find("\"matrix_rates\"")) != std::string::npos;)
    without.erase(at, without.find(']', at) + 2 - at);
  const auto few = cluster_from_json(without);
  REQUIRE_MESSAGE(few.ok(), std::string(few.status().message()));
  CHECK(few->kinds[0].matrix_rates.empty());
}

TEST_CASE("inconsistent cluster files are refused with the key and the value") {
  const std::string text = cluster_to_json(example());
  CHECK(refusal(text, "\"batched_share\": 0.45", "\"batched_share\": 1.5").find("batched_share") !=
        std::string::npos);
  CHECK(refusal(text, "\"launch_s\": 9e-06", "\"launch_s\": -1").find("launch_s = -1") != std::string::npos);
  // Sums and quotients of such would be infinite, or numbers no longer.
  CHECK(refusal(text, "\"launch_s\": 9e-06", "\"launch_s\": 1e308").find("launch_s = 1e+308") !=
        std::string::npos);
  CHECK(refusal(text, "100000000000.0", "1e-300").find("wanted 0, or 1 to") != std::string::npos);
  CHECK(refusal(text, "\"memory_bytes\": ", "\"memory_bytes\": 9223372036854775807, \"x\": ")
            .find("memory_bytes") != std::string::npos);
  CHECK(refusal(text, "\"reserved_bytes\": 1073741824", "\"reserved_bytes\": 85899345920")
            .find("wanted less than its memory_bytes = 85899345920") != std::string::npos);
  CHECK(
      refusal(text, "\"reserved_bytes\": 1073741824", "\"reserved_bytes\": -1").find("reserved_bytes = -1") !=
      std::string::npos);
  CHECK(refusal(text, "\"count\": 2", "\"count\": 99999999").find("count = 99999999") != std::string::npos);
  CHECK(refusal(text, "\"kind\": \"small\"", "\"kind\": \"huge\"").find("'huge'") != std::string::npos);
  CHECK(refusal(text, "\"members\": 4", "\"members\": 2").find("members = 2") != std::string::npos);
  CHECK(refusal(text, "\"dtype\": \"f16\"", "\"dtype\": \"f17\"").find("'f17'") != std::string::npos);
  // Products of 8-bit floats are one rate, and there or not.
  CHECK(refusal(text, "\"dtype\": \"e4m3\"", "\"dtype\": \"e5m2\"").find("as e4m3") != std::string::npos);
  CHECK(refusal(text, "433500000000000.0", "0").find("no positive flops_per_s") != std::string::npos);
  CHECK(refusal(text, "\"dtype\": \"e4m3\"", "\"dtype\": \"f16\"").find("second time") != std::string::npos);
  CHECK(refusal(text, "\"version\": 1", "\"version\": 2").find("version 2") != std::string::npos);
  CHECK(refusal(text, "\"shared_cores\": 0", "\"shard_cores\": 0").find("shard_cores") != std::string::npos);
  CHECK(refusal(text, "100000000000.0", "0").find("network") != std::string::npos);
  CHECK(!cluster_from_json("{").ok());
  CHECK(!cluster_from_json("[]").ok());
}
