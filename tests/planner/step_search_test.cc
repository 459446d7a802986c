#include "parallel/analytic/step_search.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>

#include "graph/base/text.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/pricing/cluster_presets.h"
#include "tests/number_after.h"

using namespace tessera;

namespace {

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }
constexpr const char* kGpt3 = "gpt2:L=96,C=12288,H=96,V=51200,T=2048";
constexpr const char* kLlama405 = "llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192";

StepSearchResult search(const TransformerShape& model, const Cluster& cluster, StepSearchOptions options,
                        double* seconds = nullptr) {
  const auto start = std::chrono::steady_clock::now();
  auto result = search_step(model, cluster, options);
  if (seconds != nullptr)
    *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  REQUIRE_MESSAGE(result.ok(), std::string(result.status().message()));
  return *result;
}

std::string told(const StepSearchResult& r, double seconds) {
  return format("{} in {} s, gap {} %, {} configurations, {} solved, {} too large; planned in {} s",
                to_text(r.best.plan), r.best.time.step_s, 100 * r.gap, r.configurations, r.solved,
                r.too_large, seconds);
}

}  // namespace

TEST_CASE("GPT-3 175B on 1,024 A100 is planned to a gap of one percent, solving few of its configurations") {
  StepSearchOptions options;
  options.global_batch = 1536;
  double seconds = 0;
  const auto result = search(shape(kGpt3), *cluster_preset("dgx-a100-80gb:1024"), options, &seconds);
  MESSAGE(told(result, seconds));
  CHECK(result.solved < result.configurations / 8);
  CHECK(result.gap >= 0);
  CHECK(result.gap < 0.01);
  for (const int64_t bytes : result.best.memory_bytes) CHECK(bytes <= int64_t{80} << 30);
}

TEST_CASE("selective recomputation may be asked for where attention keeps nothing to drop") {
  StepSearchOptions options;
  options.global_batch = 16;
  options.recompute = Recompute::kSelective;
  REQUIRE(options.features.fused_attention);
  const TransformerShape model = shape("gpt2:L=24,C=2048,H=16,V=50304,T=2048");
  for (const bool wide : {false, true}) {
    options.wide = wide;
    const auto selective = search(model, *cluster_preset("dgx-h100:8"), options);
    StepSearchOptions none = options;
    none.recompute = Recompute::kNone;
    CHECK(selective.best.time.step_s == search(model, *cluster_preset("dgx-h100:8"), none).best.time.step_s);
  }
}

TEST_CASE("Llama 3 405B on 16,384 H100 is planned solving few of its configurations") {
  StepSearchOptions options;
  options.global_batch = 2048;
  double seconds = 0;
  const auto result = search(shape(kLlama405), *cluster_preset("dgx-h100:16384"), options, &seconds);
  MESSAGE(told(result, seconds));
  CHECK(result.solved < result.configurations / 8);
}

TEST_CASE("1,000 layers are planned solving few of their configurations") {
  StepSearchOptions options;
  options.global_batch = 256;
  double seconds = 0;
  const auto result = search(shape("gpt2:L=1000,C=4096,H=32,V=51200,T=2048"), *cluster_preset("dgx-h100:256"),
                             options, &seconds);
  MESSAGE(told(result, seconds));
  CHECK(result.solved < result.configurations / 4);
}

TEST_CASE(
    "the search is never slower than any plan of its space that is priced alone, and its bound never above") {
  const TransformerShape model = shape("gpt2:L=12,C=2048,H=16,V=51200,T=1024");
  for (const int64_t gib : {24, 40, 80}) {
    const Cluster cluster = *cluster_preset("dgx-a100-80gb:16");
    StepSearchOptions options;
    options.global_batch = 64;
    options.memory_limit = gib << 30;
    const auto result = search(model, cluster, options);
    int compared = 0;
    for (int32_t tp = 1; tp <= 16; tp *= 2)
      for (int32_t pp = 1; tp * pp <= 16; pp *= 2)
        for (int64_t mb = 1; mb <= 8; mb *= 2)
          for (const int32_t zero : {0, 1, 3})
            for (const Recompute recompute : {Recompute::kNone, Recompute::kFull})
              for (const bool sp : {false, true}) {
                ForeignPlan plan = options.features;
                plan.tp = tp, plan.pp = pp, plan.dp = 16 / tp / pp, plan.micro_batch = mb, plan.zero = zero;
                plan.recompute = recompute, plan.sequence_parallel = sp;
                if (pp > 12 || (sp && tp == 1) || 64 % (plan.dp * mb) != 0) continue;
                const StageTimes times(model, plan, cluster);
                bool fits = true;
                const auto stages = even_stages(model, plan);
                for (int32_t s = 0; s < pp; ++s)
                  fits = fits &&
                         times.memory_bytes(stages[static_cast<size_t>(s)], s == 0, s + 1 == pp,
                                            in_flight(plan, s, 64 / (plan.dp * mb))) <= options.memory_limit;
                const auto time = step_time(model, plan, cluster, 64);
                REQUIRE(time.ok());
                if (!fits) continue;
                ++compared;
                CHECK(result.best.time.step_s <= time->step_s * (1 + 1e-9));
                CHECK(result.bound_s <= time->step_s * (1 + 1e-9));
              }
    CHECK(compared > 20);
    CHECK(result.gap < 0.05);
  }
}

TEST_CASE(
    "on 300 random small problems the search finds what enumerating every plan, cut and recomputed block "
    "finds") {
  std::mt19937 random(1);
  const auto pick = [&](auto... values) {
    const int64_t all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  int compared = 0, equal = 0;
  double worst = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const TransformerShape model = shape(format("gpt2:L={},C={},H=16,V={},T={}", pick(2, 3, 4, 5),
                                                pick(1024, 2048, 4096), pick(8192, 51200), pick(512, 2048))
                                             .c_str());
    const auto devices = static_cast<int32_t>(pick(2, 4, 8));
    Cluster cluster = *cluster_preset(format("dgx-a100-80gb:{}", devices));
    cluster.kinds[0].issue_s = 0;
    StepSearchOptions options;
    options.global_batch = pick(4, 8, 16);
    options.virtual_stages = 1;
    options.zero = static_cast<int32_t>(pick(0, 1, 3));
    options.memory_limit = (int64_t{3} << 30) + (pick(300, 700, 1500, 3000, 8000, 30000) << 20);
    options.pin_sequence_parallel = true;
    if (trial % 3 == 0) {
      cluster.kinds[0].matrix_rates.push_back({DType::kE4M3, 400e12});
      options.features.fp8_linears = true;
    }
    double best = INFINITY;
    for (int32_t tp = 1; tp <= devices; tp *= 2)
      for (int32_t pp = 1; tp * pp <= devices; pp *= 2)
        for (int64_t mb = 1; mb <= options.global_batch; ++mb) {
          ForeignPlan plan = options.features;
          plan.tp = tp, plan.pp = pp, plan.dp = devices / tp / pp, plan.micro_batch = mb,
          plan.zero = *options.zero;
          if (options.global_batch % (plan.dp * mb) != 0 || pp > model.L) continue;
          const int64_t m = options.global_batch / (plan.dp * mb);
          const StageTimes times(model, plan, cluster);
          std::vector<StageBlocks> stages;
          const std::function<void(int64_t)> cut = [&](int64_t left) {
            const auto s = static_cast<int32_t>(stages.size());
            if (s == pp) {
              if (left > 0) return;
              const auto time = step_time(model, plan, cluster, options.global_batch, stages);
              REQUIRE(time.ok());
              best = std::min(best, time->step_s);
              return;
            }
            for (int64_t n = 1; n <= left; ++n)
              for (int64_t full = 0; full <= n; ++full) {
                const StageBlocks stage{n, full, 0};
                if (times.memory_bytes(stage, s == 0, s + 1 == pp, in_flight(plan, s, m)) >
                    options.memory_limit)
                  continue;
                stages.push_back(stage);
                cut(left - n);
                stages.pop_back();
              }
          };
          cut(model.L);
        }
    const auto found = search_step(model, cluster, options);
    REQUIRE(found.ok() == std::isfinite(best));
    if (!found.ok()) continue;
    ++compared;
    CHECK(found->bound_s <= best * (1 + 1e-9));
    CHECK(found->best.time.step_s >= best * (1 - 1e-9));
    const double off = found->best.time.step_s / best - 1;
    CHECK(off <= found->gap + 1e-9);
    equal += off < 1e-9;
    worst = std::max(worst, off);
  }
  MESSAGE(equal, " of ", compared, " equal, the worst off by ", 100 * worst, " %");
  CHECK(compared > 200);
  CHECK(equal >= compared * 95 / 100);
}

TEST_CASE("more memory, bandwidth or speed never make the best step slower") {
  const TransformerShape model = shape("gpt2:L=24,C=4096,H=32,V=51200,T=2048");
  StepSearchOptions options;
  options.global_batch = 128;
  const Cluster base = *cluster_preset("dgx-a100-40gb:32");
  double last = INFINITY;
  for (const int64_t gib : {16, 20, 24, 32, 40, 80, 400}) {
    options.memory_limit = gib << 30;
    const auto result = search_step(model, base, options);
    if (!result.ok()) continue;
    CHECK(result->best.time.step_s <= last * (1 + 1e-9));
    last = result->best.time.step_s;
  }
  CHECK(std::isfinite(last));
  options.memory_limit = int64_t{32} << 30;
  const double now = search(model, base, options).best.time.step_s;
  Cluster faster = base;
  faster.network.bytes_per_s *= 2;
  CHECK(search(model, faster, options).best.time.step_s <= now * (1 + 1e-9));
  faster = base;
  for (MatrixRate& rate : faster.kinds[0].matrix_rates) rate.flops_per_s *= 2;
  CHECK(search(model, faster, options).best.time.step_s < now);
}

TEST_CASE(
    "without limits nothing is recomputed; at tight ones some blocks are, and only as many as it takes") {
  const TransformerShape model = shape("gpt2:L=48,C=8192,H=64,V=51200,T=2048");
  StepSearchOptions options;
  options.global_batch = 128;
  options.tp = 8, options.pp = 4, options.micro_batch = 2, options.virtual_stages = 1, options.zero = 0;
  const Cluster cluster = *cluster_preset("dgx-a100-80gb:64");
  const auto recomputed = [&](int64_t gib) {
    options.memory_limit = gib << 30;
    int64_t full = 0;
    const auto result = search(model, cluster, options);
    for (const StageBlocks& stage : result.best.stages) full += stage.full;
    return full;
  };
  CHECK(recomputed(4000) == 0);
  const int64_t some = recomputed(28), more = recomputed(27);
  CHECK(some > 0);
  CHECK(some < 48);
  CHECK(more > some);
}

TEST_CASE("pins are kept, and what cannot fit says how small it could be") {
  const TransformerShape model = shape(kGpt3);
  StepSearchOptions options;
  options.global_batch = 512;
  options.tp = 4, options.zero = 1;
  const Cluster cluster = *cluster_preset("dgx-a100-80gb:128");
  const auto result = search(model, cluster, options);
  CHECK(result.best.plan.tp == 4);
  CHECK(result.best.plan.zero == 1);
  CHECK(to_text(result.best.plan).starts_with("tp=4,"));
  options.memory_limit = int64_t{16} << 30;
  const auto refused = search_step(model, cluster, options);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == StatusCode::kOutOfMemory);
  // What the message names does, and one byte or one device less does not.
  const std::string message(refused.status().message());
  CAPTURE(message);
  const size_t bytes = message.find(" bytes) with 'tp=4,");
  REQUIRE(bytes != std::string::npos);
  CHECK(message.find("optimizer state") != std::string::npos);
  const int64_t limit = std::stoll(message.substr(message.rfind('(', bytes) + 1));
  options.memory_limit = limit;
  CHECK(search_step(model, cluster, options).ok());
  options.memory_limit = limit - 1;
  CHECK(!search_step(model, cluster, options).ok());
  options.memory_limit = int64_t{16} << 30;
  Cluster larger = cluster;
  const auto count = static_cast<size_t>(test::number_after(message, "number of devices that would do is "));
  larger.devices.assign(count, 0);
  CHECK(search_step(model, larger, options).ok());
  larger.devices.assign(count - 1, 0);
  CHECK(!search_step(model, larger, options).ok());
}

TEST_CASE("the same search twice gives the same plan") {
  StepSearchOptions options;
  options.global_batch = 256;
  const Cluster cluster = *cluster_preset("dgx-h100:64");
  const auto one = search(shape("gpt2:L=32,C=4096,H=32,V=51200,T=2048"), cluster, options);
  const auto two = search(shape("gpt2:L=32,C=4096,H=32,V=51200,T=2048"), cluster, options);
  CHECK(to_text(one.best.plan) == to_text(two.best.plan));
  CHECK(one.best.time.step_s == two.best.time.step_s);
  CHECK(one.best.stages == two.best.stages);
}

TEST_CASE("a world that is three times as slow has the same plan, three times as slow") {
  const TransformerShape model = shape("gpt2:L=24,C=4096,H=32,V=51200,T=2048");
  StepSearchOptions options;
  options.global_batch = 128;
  options.memory_limit = int64_t{26} << 30;
  const Cluster now = *cluster_preset("dgx-a100-40gb:32");
  Cluster slow = now;
  const auto slower = [](Link& link) { link.bytes_per_s /= 3, link.latency_s *= 3; };
  for (MatrixRate& rate : slow.kinds[0].matrix_rates) rate.flops_per_s /= 3;
  slow.kinds[0].matmul_flops_per_s /= 3, slow.kinds[0].memory_bytes_per_s /= 3;
  slow.kinds[0].launch_s *= 3, slow.kinds[0].issue_s *= 3;
  slower(slow.link), slower(slow.network);
  for (GroupLink& link : slow.node_links) slower(link.link);
  const auto a = search(model, now, options), b = search(model, slow, options);
  CHECK(to_text(a.best.plan) == to_text(b.best.plan));
  CHECK(a.best.stages == b.best.stages);
  CHECK(b.best.time.step_s == doctest::Approx(3 * a.best.time.step_s));
}

TEST_CASE("taking away choices that the plan does not use changes nothing; others only cost") {
  const TransformerShape model = shape("gpt2:L=24,C=4096,H=32,V=51200,T=2048");
  StepSearchOptions options;
  options.global_batch = 128;
  options.memory_limit = int64_t{26} << 30;
  const Cluster cluster = *cluster_preset("dgx-a100-40gb:32");
  const auto free = search(model, cluster, options);
  StepSearchOptions same = options;
  same.zero = free.best.plan.zero, same.tp = free.best.plan.tp, same.micro_batch = free.best.plan.micro_batch;
  CHECK(search(model, cluster, same).best.time.step_s == free.best.time.step_s);
  for (const int32_t tp : {1, 2, 4, 8}) {
    StepSearchOptions pinned = options;
    pinned.tp = tp;
    const auto found = search_step(model, cluster, pinned);
    if (found.ok()) CHECK(found->best.time.step_s >= free.best.time.step_s * (1 - 1e-12));
  }
}

TEST_CASE(
    "with memory without end nothing is recomputed, and with links without cost nothing is waited for") {
  const TransformerShape model = shape("gpt2:L=24,C=4096,H=32,V=51200,T=2048");
  StepSearchOptions options;
  options.global_batch = 128;
  options.memory_limit = int64_t{1} << 50;
  Cluster cluster = *cluster_preset("dgx-a100-40gb:32");
  CHECK(search(model, cluster, options).best.time.recompute_s == 0);
  cluster.network = {1e30, 0};
  for (GroupLink& link : cluster.node_links) link.link = {1e30, 0};
  const auto free = search(model, cluster, options);
  CHECK(free.best.time.communication_s < 1e-9);
  CHECK(free.best.time.gradients_s < 1e-9);
}
