// What must hold between answers to related questions, property by property: each test begins with the
// sentence that it holds. First the search for absent hardware, then make_plan.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_search.h"
#include "parallel/pricing/cluster_presets.h"
#include "parallel/search/repeated_blocks.h"

using namespace tessera;

namespace {

struct Question {
  TransformerShape model;
  Cluster cluster;
  StepSearchOptions options;
};

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }

// Small, wide, deep; one node and several; from hardly fitting to generous.
std::vector<Question> questions() {
  struct Words {
    const char* model;
    const char* cluster;
    int64_t batch, limit_gib;
  };
  constexpr Words kWords[] = {
      {"gpt2:L=12,C=1024,H=16,V=51200,T=1024", "dgx-a100-40gb:4", 32, 5},
      {"gpt2:L=24,C=4096,H=32,V=51200,T=2048", "dgx-a100-40gb:32", 128, 26},
      {"gpt2:L=24,C=4096,H=32,V=51200,T=2048", "dgx-a100-40gb:32", 128, 14},
      {"llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=4096", "dgx-h100:16", 64, 60},
      {"gpt2:L=36,C=4096,H=32,V=51200,T=2048", "pcie-rtx-4090:64", 256, 24},
      {"gpt2:L=48,C=8192,H=64,V=51200,T=2048", "dgx-a100-80gb:64", 256, 50},
  };
  std::vector<Question> all;
  for (const Words& words : kWords) {
    Question it{shape(words.model), *cluster_preset(words.cluster), {}};
    it.options.global_batch = words.batch;
    it.options.memory_limit = words.limit_gib << 30;
    all.push_back(std::move(it));
  }
  return all;
}

StepSearchResult answer(const Question& it) {
  auto found = search_step(it.model, it.cluster, it.options);
  REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
  return std::move(*found);
}
double seconds(const Question& it) {
  const auto found = search_step(it.model, it.cluster, it.options);
  return found.ok() ? found->best.time.step_s : INFINITY;
}

// The search is exact but for a gap that it states: what it finds for the better world may be worse by that
// much, its bound may not.
void never_slower(const StepSearchResult& after, const StepSearchResult& before, const char* what) {
  CAPTURE(std::string(what));
  CHECK(after.bound_s <= before.best.time.step_s * (1 + 1e-9));
  CHECK(after.best.time.step_s <= before.best.time.step_s / (1 - after.gap) * (1 + 1e-9));
}

void each_link(Cluster& cluster, const std::function<void(Link&)>& change) {
  change(cluster.link), change(cluster.network), change(cluster.host_link), change(cluster.file_link);
  for (GroupLink& link : cluster.node_links) change(link.link);
}

}  // namespace

TEST_SUITE("metamorphic") {
  TEST_CASE("more memory: the step's time never increases") {
    for (Question it : questions()) {
      double last = INFINITY;
      for (int64_t limit = it.options.memory_limit / 2; limit <= it.options.memory_limit * 4;
           limit += it.options.memory_limit / 2) {
        Question more = it;
        more.options.memory_limit = limit;
        const auto found = search_step(more.model, more.cluster, more.options);
        if (!found.ok()) {
          CHECK(std::isinf(last));
          continue;
        }
        CHECK(found->bound_s <= last * (1 + 1e-9));
        CHECK(found->best.time.step_s * (1 - found->gap) <= last * (1 + 1e-9));
        last = std::min(last, found->best.time.step_s);
      }
      CHECK(std::isfinite(last));
    }
  }

  TEST_CASE("more bandwidth, less latency: the step's time never increases") {
    for (const Question& it : questions()) {
      const StepSearchResult now = answer(it);
      Question better = it;
      better.cluster.network.bytes_per_s *= 2;
      never_slower(answer(better), now, "network");
      better = it;
      for (GroupLink& link : better.cluster.node_links) link.link.bytes_per_s *= 2;
      better.cluster.link.bytes_per_s *= 2;
      never_slower(answer(better), now, "inside a node");
      better = it;
      each_link(better.cluster, [](Link& link) { link.bytes_per_s *= 3; });
      never_slower(answer(better), now, "all links");
      better = it;
      each_link(better.cluster, [](Link& link) { link.latency_s /= 2; });
      never_slower(answer(better), now, "latencies");
      better = it;
      better.cluster.kinds[0].memory_bytes_per_s *= 2;
      never_slower(answer(better), now, "device memory");
      better = it;
      better.cluster.host_link.bytes_per_s *= 4;
      never_slower(answer(better), now, "host link");
    }
  }

  TEST_CASE("more operations a second: the step's time never increases") {
    for (const Question& it : questions()) {
      const StepSearchResult now = answer(it);
      Question better = it;
      for (MatrixRate& rate : better.cluster.kinds[0].matrix_rates) rate.flops_per_s *= 2;
      better.cluster.kinds[0].matmul_flops_per_s *= 2;
      never_slower(answer(better), now, "products");
      better.cluster.kinds[0].launch_s /= 2, better.cluster.kinds[0].issue_s /= 2;
      never_slower(answer(better), now, "products and launches");
    }
  }

  TEST_CASE("more host memory: the step's time never increases") {
    for (const Question& it : questions()) {
      const StepSearchResult now = answer(it);
      Question better = it;
      better.cluster.host_memory_bytes = 4 * it.cluster.host_memory_bytes;
      never_slower(answer(better), now, "host memory");
    }
  }

  TEST_CASE("a larger set of options: the step's time never increases") {
    for (const Question& it : questions()) {
      const StepSearchResult free = answer(it);
      const auto with = [&](const char* what, const std::function<void(StepSearchOptions&)>& pin) {
        Question pinned = it;
        pin(pinned.options);
        const auto found = search_step(pinned.model, pinned.cluster, pinned.options);
        if (found.ok()) never_slower(free, *found, what);
      };
      for (const int32_t tp : {1, 2, 8}) with("tp", [&](auto& o) { o.tp = tp; });
      for (const int32_t pp : {1, 4}) with("pp", [&](auto& o) { o.pp = pp; });
      for (const int32_t zero : {0, 2, 3}) with("zero", [&](auto& o) { o.zero = zero; });
      for (const int64_t mb : {1, 4}) with("mb", [&](auto& o) { o.micro_batch = mb; });
      with("one chunk", [](auto& o) { o.virtual_stages = 1; });
      with("no recomputation", [](auto& o) { o.recompute = Recompute::kNone; });
      with("all recomputed", [](auto& o) { o.recompute = Recompute::kFull; });
      with("no sequence parallelism", [](auto& o) { o.pin_sequence_parallel = true; });
    }
  }

  TEST_CASE("infinite bandwidth: the step takes what its computation takes") {
    for (Question it : questions()) {
      each_link(it.cluster, [](Link& link) { link = {1e30, 0}; });
      const StepSearchResult free = answer(it);
      CHECK(free.best.time.communication_s < 1e-9);
      CHECK(free.best.time.gradients_s < 1e-9);
      CHECK(free.best.time.step_s ==
            doctest::Approx(free.best.time.compute_s + free.best.time.bubble_s + free.best.time.update_s));
    }
  }

  TEST_CASE(
      "infinite memory: nothing is recomputed, and parameters are spread only where that moves no more "
      "bytes") {
    for (Question it : questions()) {
      it.options.memory_limit = int64_t{1} << 52;
      const StepSearchResult found = answer(it);
      CHECK(found.best.time.recompute_s == 0);
      for (const StageBlocks& stage : found.best.stages) CHECK(stage.full + stage.selective == 0);
      // Spreading gradients or parameters moves more than stage 1 unless there is one micro-batch; a plan
      // that does so is no faster than one that does not.
      Question light = it;
      light.options.zero = 1;
      Question none = it;
      none.options.zero = 0;
      if (found.best.plan.zero >= 2 &&
          it.options.global_batch / found.best.plan.dp / found.best.plan.micro_batch > 1)
        CHECK(std::min(seconds(light), seconds(none)) <= found.best.time.step_s * (1 + 1e-3));
    }
  }

  TEST_CASE("a host link that costs nothing: offloading everything is free") {
    for (Question it : questions()) {
      it.cluster.host_link = {1e30, 0};
      it.cluster.host_memory_bytes = int64_t{1} << 52;
      ForeignPlan plan = answer(it).best.plan;
      const auto kept = step_time(it.model, plan, it.cluster, it.options.global_batch);
      plan.offload_optimizer = plan.offload_params = plan.offload_activations = 4;
      const auto away = step_time(it.model, plan, it.cluster, it.options.global_batch);
      REQUIRE(kept.ok());
      REQUIRE_MESSAGE(away.ok(), std::string(away.status().message()));
      CHECK(away->step_s == doctest::Approx(kept->step_s).epsilon(1e-9));
      CHECK(away->offload_s < 1e-9);
    }
  }

  TEST_CASE("a host link that costs nothing: what may wait on the host is never slower than what may not") {
    for (Question it : questions()) {
      if (it.cluster.devices.size() > 32) continue;
      it.options.wide = it.options.offload = true;
      it.cluster.host_link = {1e30, 0};
      it.cluster.host_memory_bytes = int64_t{1} << 52;
      const StepSearchResult tight = answer(it);
      it.options.offload = false;
      const StepSearchResult kept = answer(it);
      CHECK(tight.best.time.offload_s < 1e-9);
      CHECK(tight.bound_s <= kept.best.time.step_s * (1 + 1e-9));
      CHECK(tight.best.time.step_s * (1 - tight.gap) <= kept.best.time.step_s * (1 + 1e-9));
    }
  }

  TEST_CASE("more devices, which may stay idle: the step's time never increases") {
    Question it = questions()[1];
    it.options.wide = true;
    double last = INFINITY;
    for (const int32_t devices : {8, 12, 16, 17, 24}) {
      it.cluster = *cluster_preset(format("dgx-a100-40gb:{}", devices));
      const StepSearchResult now = answer(it);
      CHECK(now.bound_s <= last * (1 + 1e-9));
      CHECK(now.best.time.step_s * (1 - now.gap) <= last * (1 + 1e-9));
      last = now.best.time.step_s;
    }
  }

  TEST_CASE("relabelled devices: the same time and the same plan") {
    for (const Question& it : questions()) {
      // A second name for the same kind, and devices that carry either.
      Question renamed = it;
      renamed.cluster.kinds[0].name = "another name";
      const StepSearchResult a = answer(it), b = answer(renamed);
      CHECK(to_text(a.best.plan) == to_text(b.best.plan));
      CHECK(a.best.time.step_s == b.best.time.step_s);
    }
  }

  TEST_CASE("all times scaled by c: the same plan, c times as long") {
    for (const Question& it : questions())
      for (const double c : {3.0}) {
        Question scaled = it;
        each_link(scaled.cluster, [&](Link& link) { link.bytes_per_s /= c, link.latency_s *= c; });
        DeviceKind& kind = scaled.cluster.kinds[0];
        for (MatrixRate& rate : kind.matrix_rates) rate.flops_per_s /= c;
        kind.matmul_flops_per_s /= c, kind.memory_bytes_per_s /= c;
        kind.launch_s *= c, kind.issue_s *= c;
        const StepSearchResult a = answer(it), b = answer(scaled);
        CHECK(to_text(a.best.plan) == to_text(b.best.plan));
        CHECK(a.best.stages == b.best.stages);
        CHECK(b.best.time.step_s == doctest::Approx(c * a.best.time.step_s).epsilon(1e-9));
        CHECK(b.bound_s == doctest::Approx(c * a.bound_s).epsilon(1e-9));
      }
  }

  TEST_CASE("a layer split into two exact halves: never slower") {
    std::mt19937 random(5);
    // A half may be recomputed, or sharded, without the other.
    for (int trial = 0; trial < 100; ++trial) {
      std::vector<BlockChoice> whole, half;
      for (int way = 0; way < 4; ++way) {
        const double t = 2 * static_cast<double>(1 + random() % 100);
        const auto bytes = static_cast<int64_t>(2 * (1 + random() % 100));
        whole.push_back({t, bytes, 0}), half.push_back({t / 2, bytes / 2, 0});
      }
      const int64_t blocks = 1 + static_cast<int64_t>(random() % 20);
      const auto budget =
          static_cast<int64_t>(static_cast<double>(blocks) * (20 + static_cast<double>(random() % 150)));
      const auto a = solve_repeated_blocks(whole, blocks, budget),
                 b = solve_repeated_blocks(half, 2 * blocks, budget);
      if (a.ok()) REQUIRE(b.ok());
      if (a.ok()) CHECK(b->time_s <= a->time_s * (1 + 1e-12));
    }
  }

  TEST_CASE("twice the micro-batches of the same size: the bubble's share falls") {
    for (const Question& it : questions())
      for (const int32_t pp : {2, 4}) {
        double last = INFINITY;
        for (int64_t times = 1; times <= 8; times *= 2) {
          Question more = it;
          more.options.memory_limit = int64_t{1} << 52;
          more.options.global_batch *= times;
          more.options.pp = pp, more.options.tp = 1, more.options.micro_batch = 1, more.options.zero = 1;
          more.options.virtual_stages = 1, more.options.recompute = Recompute::kNone;
          const StepTime time = answer(more).best.time;
          const double share = time.bubble_s / time.step_s;
          CHECK(share < last);
          last = share;
        }
      }
  }

  TEST_CASE("an option taken away that the plan does not use: the same time") {
    for (const Question& it : questions()) {
      const StepSearchResult free = answer(it);
      Question pinned = it;
      pinned.options.tp = free.best.plan.tp, pinned.options.pp = free.best.plan.pp;
      pinned.options.zero = free.best.plan.zero, pinned.options.micro_batch = free.best.plan.micro_batch;
      pinned.options.virtual_stages = free.best.plan.virtual_stages;
      pinned.options.features.sequence_parallel = free.best.plan.sequence_parallel;
      pinned.options.pin_sequence_parallel = true;
      CHECK(seconds(pinned) == free.best.time.step_s);
      if (free.best.time.recompute_s == 0) {
        pinned = it;
        pinned.options.recompute = Recompute::kNone;
        CHECK(seconds(pinned) == free.best.time.step_s);
      }
    }
  }

  TEST_CASE("the same question: the same bits") {
    for (const Question& it : questions()) {
      const StepSearchResult a = answer(it), b = answer(it);
      CHECK(to_text(a.best.plan) == to_text(b.best.plan));
      CHECK(a.best.stages == b.best.stages);
      CHECK(a.best.time.step_s == b.best.time.step_s);
      CHECK(a.bound_s == b.bound_s);
      CHECK(a.configurations == b.configurations);
      CHECK(a.solved == b.solved);
    }
  }

  TEST_CASE("one device, one stage, one micro-batch: the time of the plain sum") {
    Question it{shape("gpt2:L=4,C=1024,H=16,V=8192,T=512"), *cluster_preset("dgx-a100-80gb:1"), {}};
    it.options.global_batch = 4;
    it.options.micro_batch = 4;
    const StepSearchResult found = answer(it);
    CHECK(found.best.plan.devices() == 1);
    const StageTimes times(it.model, found.best.plan, it.cluster);
    const StagePasses passes = times.of({4, 0, 0}, true, true);
    CHECK(found.best.time.communication_s == 0);
    CHECK(found.best.time.bubble_s == 0);
    CHECK(found.best.time.gradients_s == 0);
    CHECK(found.best.time.step_s ==
          doctest::Approx(passes.forward_s + passes.backward_s + found.best.time.update_s).epsilon(1e-12));
  }
}
