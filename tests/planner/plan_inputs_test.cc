// Questions that make no sense are refused with the value found and the value wanted.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>

#include "parallel/planner/planner.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/fake_catalog.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

Cluster cluster_of(int devices) { return fake_cluster(devices, {1e9, 1e-6}, 1e12); }

// The message of a refusal; empty where there is a plan.
std::string refusal(const Cluster& cluster, const std::string& parallel = "") {
  static const Graph step = training_step("gpt2:L=2,C=32,H=4,V=64,T=32").value();
  PlanOptions options;
  options.global_batch = 4, options.symbols = {{"T", 32}}, options.parallel = parallel;
  const auto planned = make_plan(step, cluster, FakeCatalog(), options);
  if (planned.ok()) return {};
  CHECK(planned.status().code() == StatusCode::kInvalidArgument);
  return std::string(planned.status().message());
}

}  // namespace

TEST_CASE("clusters without devices, and rates that no machine has, are refused by name") {
  CHECK(refusal(cluster_of(2)).empty());
  const auto changed = [](const std::function<void(Cluster&)>& change) {
    Cluster cluster = cluster_of(2);
    change(cluster);
    return refusal(cluster);
  };
  const auto says = [](const std::string& message, const char* words) {
    CHECK_MESSAGE(message.find(words) != std::string::npos, message);
  };
  says(changed([](Cluster& c) { c.devices.clear(); }), "has no devices to plan for, wanted at least one");
  says(changed([](Cluster& c) { c.devices[1] = 3; }), "device 1 is of kind 3, the cluster lists 1 kinds");
  says(changed([](Cluster& c) { c.devices[0] = -1; }), "device 0 is of kind -1");
  says(changed([](Cluster& c) { c.kinds[0].matmul_flops_per_s = NAN; }),
       "'fake' has matmul_flops_per_s = nan");
  says(changed([](Cluster& c) { c.kinds[0].memory_bytes_per_s = -1; }), "memory_bytes_per_s = -1, wanted");
  says(changed([](Cluster& c) { c.kinds[0].matrix_rates = {{DType::kBF16, 1e31}}; }), "bf16 = 1e+31, wanted");
  says(changed([](Cluster& c) { c.kinds[0].launch_s = INFINITY; }), "launch_s = inf");
  says(changed([](Cluster& c) { c.kinds[0].memory_bytes = -5; }), "memory_bytes = -5, wanted 0 to");
  says(changed([](Cluster& c) { c.link.latency_s = -1e-6; }), "link has latency_s = -1e-06");
  says(changed([](Cluster& c) { c.network.bytes_per_s = -1; }), "network has bytes_per_s = -1");
  says(changed([](Cluster& c) {
         c.node_links = {{4, {NAN, 0}}};
       }),
       "link of 4 members has bytes_per_s = nan");
  says(changed([](Cluster& c) { c.node_devices = -2; }), "node_devices = -2");
  // The largest rates that are allowed price a step at nothing, and leave a gap that is a number.
  Cluster fast = cluster_of(1);
  fast.kinds[0].matmul_flops_per_s = fast.kinds[0].memory_bytes_per_s = fast.link.bytes_per_s = 1e30;
  fast.kinds[0].launch_s = fast.link.latency_s = 0;
  CHECK(refusal(fast).empty());
}

TEST_CASE("words that contradict the devices or the model name both") {
  const std::string devices = refusal(cluster_of(4), "dp=3,tp=2");
  CHECK_MESSAGE(devices.find("'dp=3,tp=2' uses 6 devices, 4 are given") != std::string::npos, devices);
  const std::string stages = refusal(cluster_of(8), "pp=8");
  CHECK_MESSAGE(stages.find("8") != std::string::npos, stages);
  MESSAGE(stages);
  const std::string twice = refusal(cluster_of(4), "tp=2,tp=4");
  CHECK_MESSAGE(twice.find("tp") != std::string::npos, twice);
  MESSAGE(twice);
}
