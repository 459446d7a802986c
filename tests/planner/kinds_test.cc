// Clusters whose devices are of several kinds, on hardware that is absent.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/analytic/batch_search.h"
#include "parallel/analytic/kinds_search.h"
#include "parallel/analytic/mixed_search.h"
#include "parallel/pricing/cluster_presets.h"

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

  TEST_CASE(
      "a pipeline gives faster devices more blocks, and is faster than either kind and than both alike") {
    Question it{shape("gpt2:L=32,C=4096,H=32,V=51200,T=2048"), {}};
    it.options.global_batch = 64, it.options.wide = true;
    const StepSearchResult found = answer(it, fleet({"dgx-a100-80gb:8", "dgx-h100:8"}));
    REQUIRE(found.stage_kinds);
    const StageKinds& kinds = *found.stage_kinds;
    REQUIRE(kinds.of_stage.size() == static_cast<size_t>(found.best.plan.pp));
    std::vector<int64_t> blocks(2, 0), stages(2, 0);
    for (size_t s = 0; s < kinds.of_stage.size(); ++s) {
      const bool h100 = kinds.kinds[kinds.of_stage[s]].kinds[0].name == "h100";
      blocks[h100 ? 1 : 0] += found.best.stages[s].blocks, ++stages[h100 ? 1 : 0];
    }
    CHECK(blocks[0] + blocks[1] == it.model.L);
    CHECK(blocks[1] * stages[0] > blocks[0] * stages[1]);
    for (size_t i = 1; i < found.kinds.size(); ++i) CHECK(found.best.time.step_s < found.kinds[i].step_s);
    const auto again = mixed_step_time(it.model, found.best.plan, kinds, 64, found.best.stages);
    REQUIRE(again.ok());
    CHECK(again->step_s == found.best.time.step_s);
    for (size_t s = 0; s < kinds.of_stage.size(); ++s)
      CHECK(found.best.memory_bytes[s] <= kinds.kinds[kinds.of_stage[s]].kinds[0].memory_bytes);
  }

  TEST_CASE("a pipeline over two kinds that are alike takes as long as over one") {
    const TransformerShape model = shape("llama:L=12,C=2048,H=16,KV=16,F=5632,V=32000,T=1024");
    const Cluster box = *cluster_preset("dgx-a100-80gb:8");
    Cluster half = box;
    half.devices.resize(4);
    for (const char* words : {"tp=4,dp=1,pp=2,mb=2", "tp=2,dp=1,pp=4,mb=1", "tp=1,dp=1,pp=8,mb=4"}) {
      ForeignPlan plan = *parse_foreign_plan(words, "");
      const std::vector<StageBlocks> stages = even_stages(model, plan);
      StageKinds kinds{{half, half}, {}, box};
      for (int32_t s = 0; s < plan.pp; ++s) kinds.of_stage.push_back(2 * s < plan.pp ? 0 : 1);
      const auto mixed = mixed_step_time(model, plan, kinds, 32, stages);
      const auto plain = step_time(model, plan, box, 32, stages);
      REQUIRE(mixed.ok());
      REQUIRE(plain.ok());
      CHECK(mixed->step_s == doctest::Approx(plain->step_s).epsilon(1e-9));
    }
  }

  TEST_CASE(
      "pipelines over two kinds: no cut, order or recomputation of the space is faster than the bound") {
    const TransformerShape model = shape("gpt2:L=6,C=1024,H=4,V=51200,T=1024");
    StepSearchOptions options;
    options.global_batch = 4;
    for (const int64_t limit_mib : {0, 5600, 4800}) {
      options.memory_limit = limit_mib << 20;
      const auto parts = cluster_parts(fleet({"dgx-a100-40gb:2", "pcie-rtx-5000:2"}), DType::kBF16);
      REQUIRE(parts.ok());
      const MixedSearchResult found = search_mixed(model, *parts, options, INFINITY);
      double least = INFINITY;
      // All of one or two stages a kind.
      for (const bool turned : {false, true})
        for (const int32_t tp : {1, 2})
          for (const int32_t dp : {1, 2})
            for (const int64_t mb : {1, 2, 4})
              for (const int32_t zero : {0, 1, 2, 3})
                for (const bool sp : {false, true})
                  for (const int32_t p : {1, 2})
                    for (const int32_t q : {1, 2}) {
                      if (tp * dp * std::max(p, q) > 2 || (sp && tp == 1) || (zero > 0 && dp == 1)) continue;
                      if (4 % (dp * mb) != 0) continue;
                      ForeignPlan plan = options.features;
                      plan.tp = tp, plan.dp = dp, plan.pp = p + q, plan.micro_batch = mb, plan.zero = zero;
                      plan.sequence_parallel = sp;
                      const auto alone = [&](size_t g) {
                        for (const ClusterPart& part : parts->parts)
                          if (part.groups == std::vector<size_t>{g}) return part.cluster;
                        return Cluster();
                      };
                      StageKinds kinds{{alone(turned ? 1 : 0), alone(turned ? 0 : 1)}, {}, alone(0)};
                      // Two nodes, each device with its share of the slower network.
                      kinds.between.node_devices = 1;
                      double rate = INFINITY, latency = 0;
                      for (const Cluster& kind : kinds.kinds) {
                        rate = std::min(rate, kind.network.bytes_per_s / kind.node_devices);
                        latency = std::max(latency, kind.network.latency_s);
                      }
                      kinds.between.network = {rate, latency};
                      for (int32_t s = 0; s < p + q; ++s) kinds.of_stage.push_back(s < p ? 0 : 1);
                      const MixedStages times(model, plan, kinds);
                      std::vector<StageBlocks> stages(static_cast<size_t>(p + q));
                      const auto each = [&](auto&& self, int32_t s, int64_t left) -> void {
                        if (s == p + q) {
                          if (left > 0) return;
                          const auto time = mixed_step_time(model, plan, kinds, 4, stages);
                          REQUIRE(time.ok());
                          least = std::min(least, time->step_s);
                          return;
                        }
                        for (int64_t n = 1; n <= left; ++n)
                          for (int64_t full = 0; full <= n; ++full) {
                            const StageBlocks stage{n, full, 0};
                            const Cluster& own = kinds.kinds[kinds.of_stage[static_cast<size_t>(s)]];
                            const int64_t limit =
                                limit_mib > 0 ? options.memory_limit : own.kinds[0].memory_bytes;
                            if (times.times(s).memory_bytes(stage, s == 0, s + 1 == p + q,
                                                            in_flight(plan, s, 4 / (mb * dp))) > limit)
                              continue;
                            stages[static_cast<size_t>(s)] = stage;
                            self(self, s + 1, left - n);
                            break;  // more recomputed is no faster
                          }
                      };
                      each(each, 0, model.L);
                    }
      CAPTURE(limit_mib);
      CHECK(std::isfinite(least) == found.best.has_value());
      if (!found.best) continue;
      CHECK(found.bound_s <= least * (1 + 1e-12));
      CHECK(found.bound_s >= least * 0.8);
      CHECK(found.best->time.step_s >= least * (1 - 1e-12));
      CHECK(found.best->time.step_s <= least * 1.05);
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
