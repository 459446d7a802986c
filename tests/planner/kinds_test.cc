// Clusters whose devices are of several kinds, on hardware that is absent.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/analytic/batch_search.h"
#include "parallel/analytic/kinds_search.h"
#include "parallel/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }

Fleet fleet(std::initializer_list<const char*> presets) {
  Fleet all;
  for (const char* preset : presets) all.clusters.push_back(*cluster_preset(preset));
  return all;
}

struct Question {
  TransformerShape model;
  StepSearchOptions options;
};

// Small enough for one node, and only for several.
std::vector<Question> questions() {
  std::vector<Question> all;
  for (const auto& [words, batch] : {std::pair{"gpt2:L=24,C=2048,H=16,V=51200,T=1024", int64_t{64}},
                                     std::pair{"gpt2:L=16,C=5120,H=40,V=51200,T=2048", int64_t{32}}}) {
    Question it{shape(words), {}};
    it.options.global_batch = batch;
    it.options.wide = true;
    all.push_back(std::move(it));
  }
  return all;
}

StepSearchResult answer(const Question& it, const Fleet& on) {
  auto found = search_step(it.model, on, it.options);
  REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
  return std::move(*found);
}

void same_plan(const StepSearchResult& a, const StepSearchResult& b) {
  CHECK(to_text(a.best.plan) == to_text(b.best.plan));
  CHECK(a.best.stages == b.best.stages);
  CHECK(a.best.memory_bytes == b.best.memory_bytes);
  CHECK(a.best.time.step_s == b.best.time.step_s);
}

// Devices of one box: those of each kind beside each other.
Cluster one_box(std::initializer_list<std::pair<const char*, int>> kinds) {
  Cluster box;
  for (const auto& [preset, count] : kinds) {
    const Cluster one = *cluster_preset(preset);
    const auto kind = static_cast<int32_t>(box.kinds.size());
    std::vector<DeviceKind> listed = box.kinds;
    std::vector<int32_t> devices = box.devices;
    if (box.kinds.empty()) box = one, listed.clear(), devices.clear();
    listed.push_back(one.kinds[0]);
    devices.insert(devices.end(), static_cast<size_t>(count), kind);
    box.kinds = listed, box.devices = devices;
  }
  box.node_devices = 0;
  return box;
}

}  // namespace

TEST_SUITE("kinds") {
  TEST_CASE("a cluster of one kind gives the plan that it gives without kinds being looked at") {
    for (const Question& it : questions()) {
      const Fleet one = fleet({"dgx-a100-80gb:12"});
      const auto plain = search_step(it.model, one.clusters[0], it.options);
      REQUIRE(plain.ok());
      const StepSearchResult now = answer(it, one);
      same_plan(*plain, now);
      CHECK(now.kinds.empty());
      CHECK(!now.part);
      CHECK(now.bound_s == plain->bound_s);
      // The same machines in two words.
      same_plan(answer(it, fleet({"dgx-a100-80gb:8", "dgx-a100-80gb:4"})), *plain);
    }
  }

  TEST_CASE("one more kind of device never makes a step slower, and the bound never rises") {
    const std::vector<Fleet> growing = {fleet({"dgx-a100-40gb:8"}),
                                        fleet({"dgx-a100-40gb:8", "pcie-rtx-4090:8"}),
                                        fleet({"dgx-a100-40gb:8", "pcie-rtx-4090:8", "dgx-h100:8"})};
    for (const Question& it : questions()) {
      double step = INFINITY, bound = INFINITY;
      for (const Fleet& on : growing) {
        const StepSearchResult now = answer(it, on);
        CHECK(now.best.time.step_s <= step);
        CHECK(now.bound_s <= bound);
        CHECK(now.bound_s <= now.best.time.step_s);
        CHECK(now.gap == doctest::Approx(1 - now.bound_s / now.best.time.step_s).epsilon(1e-12));
        step = now.best.time.step_s, bound = now.bound_s;
      }
    }
  }

  TEST_CASE("kinds listed in another order, or under other names, change nothing") {
    for (const Question& it : questions()) {
      const StepSearchResult a = answer(it, fleet({"dgx-a100-80gb:8", "dgx-h100:8"}));
      same_plan(a, answer(it, fleet({"dgx-h100:8", "dgx-a100-80gb:8"})));
      Fleet renamed = fleet({"dgx-h100:8", "dgx-a100-80gb:8"});
      renamed.clusters[0].kinds[0].name = "a";
      renamed.clusters[1].kinds[0].name = "z";
      same_plan(a, answer(it, renamed));
      // A kind that is listed and has no device.
      Fleet listed = fleet({"dgx-a100-80gb:8", "dgx-h100:8"});
      Cluster& first = listed.clusters[0];
      first.kinds.insert(first.kinds.begin(), cluster_preset("dgx-v100-16gb:8")->kinds[0]);
      std::ranges::fill(first.devices, 1);
      same_plan(a, answer(it, listed));
    }
  }

  TEST_CASE("a kind that the plan leaves idle may be taken away") {
    for (const Question& it : questions()) {
      const StepSearchResult with = answer(it, fleet({"dgx-h100:8", "dgx-v100-16gb:8"}));
      REQUIRE(with.kinds[0].used == "8 h100");
      CHECK(with.kinds[0].idle == "8 v100-16gb");
      same_plan(with, answer(it, fleet({"dgx-h100:8"})));
    }
  }

  TEST_CASE("devices of several kinds together are priced no faster than as many of any of them") {
    Question it = questions()[1];
    const auto parts =
        cluster_parts(fleet({"dgx-a100-80gb:8", "dgx-h100:8", "pcie-rtx-4090:8"}), DType::kBF16);
    REQUIRE(parts.ok());
    CHECK(parts->groups.size() == 3);
    CHECK(parts->parts.size() == 7);
    for (const ClusterPart& part : parts->parts) {
      for (const size_t g : part.groups) CHECK(parts->groups[g].devices == 8);
      CHECK(part.cluster.devices.size() == 8 * part.groups.size());
      CHECK(part.cluster.node_devices == 8);
      for (const DeviceKind& kind : part.members) {
        CHECK(part.cluster.kinds[0].memory_bytes <= kind.memory_bytes);
        CHECK(part.cluster.kinds[0].memory_bytes_per_s <= kind.memory_bytes_per_s);
      }
    }
    // What it finds for A100 and H100 together takes no less on sixteen of either.
    const Fleet both = fleet({"dgx-a100-80gb:8", "dgx-h100:8"});
    it.options.pp = 1;
    const StepSearchResult found = answer(it, both);
    const auto together = std::ranges::find(found.kinds, std::string(), &KindChoice::idle);
    REQUIRE(together != found.kinds.end());
    for (const char* alike : {"dgx-a100-80gb:16", "dgx-h100:16"}) {
      const auto all = search_step(it.model, *cluster_preset(alike), it.options);
      REQUIRE(all.ok());
      CHECK(together->step_s >= all->bound_s * (1 - 1e-9));
    }
  }

  TEST_CASE("nodes of unlike sizes: what leaves a node is never counted twice") {
    // Three of one kind and five of another in each box of eight: both together are whole boxes.
    Cluster boxes = *cluster_preset("dgx-a100-80gb:16");
    boxes.kinds.push_back(cluster_preset("dgx-h100:8")->kinds[0]);
    for (const size_t d : {0, 1, 2, 8, 9, 10}) boxes.devices[d] = 1;
    const auto parts = cluster_parts({{boxes}}, DType::kBF16);
    REQUIRE(parts.ok());
    for (const ClusterPart& part : parts->parts) {
      CHECK(part.cluster.network == boxes.network);
      CHECK(part.cluster.node_devices == (part.groups.size() == 2            ? 8
                                          : part.cluster.devices.size() == 6 ? 3
                                                                             : 5));
    }
    // Eight and four: as three nodes of four that share the cards of the first two, or one of eight.
    const auto uneven =
        cluster_parts(fleet({"dgx-a100-80gb:8", "pcie-rtx-5000:4", "pcie-rtx-5000:4"}), DType::kF16);
    REQUIRE(uneven.ok());
    bool halved = false;
    for (const ClusterPart& part : uneven->parts)
      if (part.groups.size() == 2 && part.cluster.node_devices == 4) {
        halved = true;
        CHECK(part.cluster.devices.size() == 16);
        CHECK(part.cluster.network.bytes_per_s <= cluster_preset("pcie-rtx-5000:4")->network.bytes_per_s);
        CHECK(part.cluster.network.bytes_per_s <= cluster_preset("dgx-a100-80gb:8")->network.bytes_per_s / 2);
      }
    CHECK(halved);
  }

  TEST_CASE("devices of one box without a network are planned together, boxes without one are not") {
    const Cluster box = one_box({{"pcie-rtx-4090:4", 4}, {"pcie-rtx-5000:4", 4}});
    const auto together = cluster_parts({{box}}, DType::kBF16);
    REQUIRE(together.ok());
    CHECK(together->parts.size() == 3);
    const auto apart = cluster_parts(fleet({"cpu:4", "dgx-h100:8"}), DType::kF32);
    REQUIRE(apart.ok());
    CHECK(apart->parts.size() == 2);
    Question it = questions()[0];
    const StepSearchResult found = answer(it, fleet({"cpu:4", "dgx-h100:8"}));
    CHECK(found.kinds[0].used == "8 h100");
    CHECK(found.kinds[0].idle == "4 cpu");
  }

  TEST_CASE("where nothing fits, the smallest limit of all kinds is named, and it does") {
    Question it = questions()[1];
    it.options.wide = false;
    it.options.memory_limit = int64_t{4} << 30;
    const Fleet both = fleet({"dgx-a100-40gb:4", "dgx-h100:4"});
    const auto none = search_step(it.model, both, it.options);
    REQUIRE(!none.ok());
    CHECK(none.status().code() == StatusCode::kOutOfMemory);
    const std::string message(none.status().message());
    CAPTURE(message);
    const size_t at = message.find("the smallest limit that works is "), open = message.find('(', at);
    REQUIRE(at != std::string::npos);
    const auto bytes = parse_i64(message.substr(open + 1, message.find(' ', open) - open - 1));
    REQUIRE(bytes);
    it.options.memory_limit = *bytes;
    CHECK(search_step(it.model, both, it.options).ok());
    it.options.memory_limit = *bytes - 1;
    CHECK(!search_step(it.model, both, it.options).ok());
  }

  TEST_CASE("a batch is chosen on several kinds of devices, and serving takes the better kind") {
    Question it = questions()[0];
    const Fleet both = fleet({"dgx-a100-40gb:4", "dgx-h100:4"});
    const auto batch = search_batch(it.model, both, it.options, *parse_batch_range("16..64/16", 8));
    REQUIRE(batch.ok());
    const auto alone =
        search_batch(it.model, fleet({"dgx-h100:4"}), it.options, *parse_batch_range("16..64/16", 8));
    REQUIRE(alone.ok());
    CHECK(batch->per_s >= alone->per_s);
    for (const bool throughput : {false, true}) {
      GenerateOptions options;
      options.throughput = throughput;
      const auto found = search_generate(it.model, both, options),
                 one = search_generate(it.model, fleet({"dgx-h100:4"}), options);
      REQUIRE(found.ok());
      REQUIRE(one.ok());
      if (throughput)
        CHECK(found->best.time.tokens_per_s >= one->best.time.tokens_per_s);
      else
        CHECK(found->best.time.request_s <= one->best.time.request_s);
      CHECK(!found->used.empty());
    }
  }

  TEST_CASE("more kinds than choices can be gone through are refused with what is wanted") {
    const auto none = cluster_parts(fleet({"dgx-v100-16gb:8", "dgx-v100-32gb:8", "dgx-a100-40gb:8",
                                           "dgx-a100-80gb:8", "dgx-h100:8", "dgx-h200:8"}),
                                    DType::kBF16);
    REQUIRE(!none.ok());
    CHECK(none.status().code() == StatusCode::kUnsupported);
    CHECK(none.status().message().find("wanted 5 at most") != std::string::npos);
  }
}
