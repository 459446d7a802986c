// The search of the whole space: never worse than the narrower one, its bound true, the same for any number
// of threads.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>

#include "graph/base/text.h"
#include "parallel/analytic/pipeline_replay.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_search.h"
#include "parallel/analytic/zero_bubble_replay.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }
constexpr const char* kGpt3 = "gpt2:L=96,C=12288,H=96,V=51200,T=2048";
constexpr const char* kLlama405 = "llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192";

StepSearchResult search(const TransformerShape& model, const Cluster& cluster,
                        const StepSearchOptions& options, double* seconds = nullptr) {
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

TEST_CASE(
    "GPT-3 on 1,024 devices in the whole space is proved within a percent, and no slower than in the narrow "
    "one") {
  StepSearchOptions options;
  options.global_batch = 1536;
  const Cluster cluster = *cluster_preset("dgx-a100-80gb:1024");
  const double narrow = search(shape(kGpt3), cluster, options).best.time.step_s;
  options.wide = true;
  double seconds = 0;
  const auto result = search(shape(kGpt3), cluster, options, &seconds);
  MESSAGE(told(result, seconds));
  CHECK(result.gap < 0.01);
  CHECK(result.best.time.step_s <= narrow);
}

TEST_CASE("Llama 3 405B on 16,384 devices in the whole space uses what the narrow one lacks") {
  StepSearchOptions options;
  options.global_batch = 2048;
  options.wide = true;
  double seconds = 0;
  const auto result = search(shape(kLlama405), *cluster_preset("dgx-h100:16384"), options, &seconds);
  MESSAGE(told(result, seconds));
  CHECK(result.gap < 0.01);
  options.wide = false;
  const auto narrow = search(shape(kLlama405), *cluster_preset("dgx-h100:16384"), options);
  CHECK(result.best.time.step_s < 0.95 * narrow.best.time.step_s);
}

TEST_CASE("of deep models hardly more configurations have to be solved than of shallow ones") {
  for (const auto& [width, batch] : {std::pair{2048, 512}, std::pair{4096, 256}})
    for (const int blocks : {24, 96, 250, 1000}) {
      const TransformerShape model =
          shape(format("gpt2:L={},C={},H={},V=51200,T=2048", blocks, width, width / 128).c_str());
      StepSearchOptions options;
      options.global_batch = batch;
      options.wide = true;
      // Hundreds differ in their chunks and recomputed blocks alone; one by one they would be thousands.
      const StepSearchResult result = search(model, *cluster_preset("dgx-h100:256"), options);
      MESSAGE(blocks, " blocks of ", width, ": ", told(result, 0));
      CHECK(result.solved <= 200);
      CHECK(result.gap < 0.03);
    }
}

TEST_CASE("no zero-bubble schedule takes less than its bound, and a limit above its time changes nothing") {
  std::mt19937 random(11);
  const auto between = [&](double a, double b) {
    return a + (b - a) * static_cast<double>(random() % 1001) / 1000;
  };
  constexpr ForeignSchedule kSchedules[] = {ForeignSchedule::kZbH1, ForeignSchedule::kZbH2,
                                            ForeignSchedule::kZbV};
  int reached = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const ForeignSchedule schedule = kSchedules[trial % 3];
    const auto p = static_cast<int32_t>(1 + random() % 8);
    const auto m = static_cast<int64_t>(1 + random() % 20);
    const double input = between(0.5, 2), weight = between(0.1, 1.5), uneven = trial % 2 == 0 ? 0.5 : 0;
    std::vector<StageTime> times;
    for (int32_t stage = 0; stage < p * (schedule == ForeignSchedule::kZbV ? 2 : 1); ++stage) {
      const double size = between(1 - uneven, 1 + uneven);
      times.push_back({size, size * (input + weight), size * weight});
    }
    const double bound = zero_bubble_bound(schedule, p, m, times);
    const double taken = replay_zero_bubble(schedule, p, m, times, 0).makespan_s;
    CHECK(bound <= taken * (1 + 1e-9));
    reached += taken <= bound * (1 + 1e-9);
    CHECK(replay_zero_bubble(schedule, p, m, times, 0, nullptr, taken * (1 + 1e-6)).makespan_s == taken);
    CHECK(std::isinf(replay_zero_bubble(schedule, p, m, times, 0, nullptr, bound * (1 - 1e-6)).makespan_s));
  }
  CHECK(reached > 200);  // the bound is the time itself for a third or more
}

TEST_CASE("no replay takes less than its floor, and a limit above its time changes nothing") {
  std::mt19937 random(12);
  const auto between = [&](double a, double b) {
    return a + (b - a) * static_cast<double>(random() % 1001) / 1000;
  };
  constexpr ForeignSchedule kSchedules[] = {ForeignSchedule::k1F1B, ForeignSchedule::kGpipe,
                                            ForeignSchedule::kInterleaved};
  int reached = 0, close = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const ForeignSchedule schedule = kSchedules[trial % 3];
    const auto p = static_cast<int32_t>(1 + random() % 8);
    const auto chunks =
        static_cast<int32_t>(schedule == ForeignSchedule::kInterleaved ? 2 + random() % 5 : 1);
    const auto m = static_cast<int64_t>(chunks > 1 ? p * (1 + random() % 5) : 1 + random() % 20);
    const double back = between(0.5, 3), uneven = trial % 2 == 0 ? 0.5 : 0, hop = between(0, 0.2);
    std::vector<StageTime> times;
    for (int32_t stage = 0; stage < p * chunks; ++stage) {
      const double size = between(1 - uneven, 1 + uneven);
      times.push_back({size, size * back, 0});
    }
    const double floor = pipeline_floor(schedule, p, chunks, m, times, hop);
    const double taken = replay_pipeline(schedule, p, chunks, m, times, hop).makespan_s;
    CHECK(floor <= taken * (1 + 1e-9));
    reached += taken <= floor * (1 + 1e-9), close += taken <= 1.2 * floor;
    CHECK(replay_pipeline(schedule, p, chunks, m, times, hop, nullptr, taken * (1 + 1e-6)).makespan_s ==
          taken);
    CHECK(std::isinf(
        replay_pipeline(schedule, p, chunks, m, times, hop, nullptr, floor * (1 - 1e-6)).makespan_s));
  }
  MESSAGE(reached, " of 600 take no more than their floor, ", close, " no more than a fifth more");
  CHECK(reached > 50);
  CHECK(close > 400);
}

TEST_CASE("any number of threads gives the same plan, bound and count") {
  StepSearchOptions options;
  options.global_batch = 256;
  options.wide = true, options.offload = true;
  options.memory_limit = int64_t{24} << 30;
  options.threads = 1;
  const Cluster cluster = *cluster_preset("dgx-a100-40gb:32");
  const TransformerShape model = shape("gpt2:L=24,C=4096,H=32,V=51200,T=2048");
  const auto one = search(model, cluster, options);
  MESSAGE(told(one, 0));
  for (const int32_t threads : {2, 5}) {
    options.threads = threads;
    const auto other = search(model, cluster, options);
    CHECK(to_text(other.best.plan) == to_text(one.best.plan));
    CHECK(other.best.time.step_s == one.best.time.step_s);
    CHECK(other.best.stages == one.best.stages);
    CHECK(other.bound_s == one.bound_s);
    CHECK(other.configurations == one.configurations);
  }
}

TEST_CASE("in the whole space more devices, memory or choices never make the best step slower") {
  const TransformerShape model = shape("gpt2:L=24,C=2304,H=24,V=51200,T=2048");
  StepSearchOptions options;
  options.global_batch = 96;
  options.wide = true;
  double last = INFINITY;
  for (const int32_t devices : {8, 10, 13, 16, 24}) {
    const double now =
        search(model, *cluster_preset(format("dgx-a100-40gb:{}", devices)), options).best.time.step_s;
    CHECK(now <= last * (1 + 1e-12));
    last = now;
  }
  const Cluster cluster = *cluster_preset("dgx-a100-40gb:16");
  last = INFINITY;
  for (const int64_t gib : {7, 10, 40}) {
    options.memory_limit = gib << 30;
    const double plain = search(model, cluster, options).best.time.step_s;
    CHECK(plain <= last * (1 + 1e-12));
    last = plain;
    StepSearchOptions more = options;
    more.offload = true;
    const double offload = search(model, cluster, more).best.time.step_s;
    CHECK(offload <= plain * (1 + 1e-12));
    CHECK(offload >= search(model, cluster, more).bound_s);
    more.offload = false, more.shard = true;
    CHECK(search(model, cluster, more).best.time.step_s <= plain * (1 + 1e-12));
  }
}

TEST_CASE("what fits in no other way is sharded one by one or left on the host, unasked") {
  StepSearchOptions options;
  options.global_batch = 16;
  options.wide = true;
  const auto result =
      search(shape("gpt2:L=20,C=4096,H=32,V=51200,T=1024"), *cluster_preset("pcie-rtx-4090:2"), options);
  CHECK(to_text(result.best.plan).find("offload=") != std::string::npos);
  CHECK(result.best.memory_bytes[0] <= int64_t{24} << 30);
}

TEST_CASE(
    "on random small problems of the whole space nothing that enumeration finds is below the bound, and "
    "nearly nothing below the plan") {
  std::mt19937 random(7);
  const auto pick = [&](auto... values) {
    const int64_t all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  int compared = 0, equal = 0;
  double worst = 0;
  for (int trial = 0; trial < 80; ++trial) {
    const TransformerShape model = shape(format("gpt2:L={},C={},H=16,V={},T={}", pick(2, 3, 4),
                                                pick(1024, 4096), pick(8192, 51200), pick(512, 4096))
                                             .c_str());
    const auto devices = static_cast<int32_t>(pick(2, 3, 4));
    Cluster cluster = *cluster_preset(format("dgx-a100-80gb:{}", devices));
    StepSearchOptions options;
    options.global_batch = pick(3, 4, 8);
    options.wide = true;
    options.zero = static_cast<int32_t>(pick(0, 1, 3));
    options.memory_limit = (int64_t{3} << 30) + (pick(300, 700, 1500, 3000, 30000) << 20);
    options.pin_sequence_parallel = true;
    if (trial % 3 == 0) {
      cluster.kinds[0].matrix_rates.push_back({DType::kE4M3, 400e12});
      options.features.fp8_linears = true;
    }
    double best = INFINITY;
    const auto consider = [&](const ForeignPlan& plan) {
      const int64_t m = options.global_batch / (plan.dp * plan.micro_batch);
      const StageTimes times(model, plan, cluster);
      std::vector<StageBlocks> stages;
      const std::function<void(int64_t)> cut = [&](int64_t left) {
        const auto s = static_cast<int32_t>(stages.size());
        if (s == plan.pp) {
          if (left > 0) return;
          const auto time = step_time(model, plan, cluster, options.global_batch, stages);
          REQUIRE(time.ok());
          best = std::min(best, time->step_s);
          return;
        }
        for (int64_t n = 1; n <= left; ++n)
          for (int64_t full = 0; full <= n; ++full) {
            const StageBlocks stage{n, full, 0};
            if (times.memory_bytes(stage, s == 0, s + 1 == plan.pp, in_flight(plan, s, m)) >
                options.memory_limit)
              continue;
            stages.push_back(stage);
            cut(left - n);
            stages.pop_back();
          }
      };
      cut(model.L);
    };
    for (int32_t tp = 1; tp <= devices; tp *= 2)
      for (int32_t cp = 1; tp * cp <= devices; cp *= 2)
        for (int32_t pp = 1; tp * cp * pp <= devices && pp <= model.L; ++pp)
          for (int32_t dp = 1; tp * cp * pp * dp <= devices; ++dp)
            for (int64_t mb = 1; mb <= options.global_batch; ++mb) {
              if (options.global_batch % (dp * mb) != 0) continue;
              for (const ContextForm form :
                   {ContextForm::kRing, ContextForm::kUlysses, ContextForm::kGather}) {
                if (cp == 1 && form != ContextForm::kRing) continue;
                for (const ForeignSchedule schedule : {ForeignSchedule::k1F1B, ForeignSchedule::kGpipe,
                                                       ForeignSchedule::kZbH1, ForeignSchedule::kZbH2}) {
                  if (pp == 1 && schedule != ForeignSchedule::k1F1B) continue;
                  ForeignPlan plan = options.features;
                  plan.tp = tp, plan.cp = cp, plan.pp = pp, plan.dp = dp, plan.micro_batch = mb;
                  plan.zero = *options.zero, plan.schedule = schedule;
                  plan.context = cp > 1 ? form : ContextForm::kNone;
                  consider(plan);
                }
              }
            }
    const auto found = search_step(model, cluster, options);
    if (!found.ok()) {
      CHECK(std::isinf(best));
      continue;
    }
    if (std::isinf(best)) continue;  // chunks, or what was turned to unasked
    ++compared;
    CHECK(found->bound_s <= best * (1 + 1e-9));
    const double off = found->best.time.step_s / best - 1;
    CHECK(off <= found->gap / (1 - found->gap) + 1e-9);
    equal += off < 1e-9;
    worst = std::max(worst, off);
  }
  MESSAGE(equal, " of ", compared, " as fast or faster, the worst off by ", 100 * worst, " %");
  CHECK(compared > 30);
  CHECK(equal >= compared * 9 / 10);
}

TEST_CASE("grids of tensor parallelism are in the whole space: found by the search where they are best") {
  const TransformerShape model = shape("gpt2:L=2,C=8192,H=64,V=51200,T=512");
  const Cluster cluster = *cluster_preset("pcie-rtx-5000:64");
  StepSearchOptions options;
  options.global_batch = 256;
  options.wide = true, options.last_resort = false;
  options.dp = 1, options.pp = 1, options.cp = 1, options.zero = 0;
  options.memory_limit = int64_t{200} << 30;
  const auto found = search(model, cluster, options);
  MESSAGE(told(found, 0));
  std::vector<std::string> forms;
  for (int32_t x = 1; x <= 64; x *= 2)
    for (int32_t y = 1; x * y <= 64; y *= 2) {
      forms.push_back(x == 1 ? format("{}", y) : format("2d:{}x{}", x, y));
      if (x > 1 && x * x * y <= 64) forms.push_back(format("2.5d:{}x{}x{}", x, x, y));
    }
  forms.push_back("3d:2x2x2"), forms.push_back("3d:4x4x4");
  double best = INFINITY, best_1d = INFINITY;
  for (const std::string& tp : forms)
    for (const char* sp : {"on", "off"})
      for (int64_t mb = 1; mb <= 256; mb *= 2) {
        const auto plan = parse_foreign_plan(format("tp={},mb={},sp={}", tp, mb, sp), "");
        REQUIRE(plan.ok());
        const auto time = step_time(model, *plan, cluster, 256);
        if (!time.ok()) continue;  // rows that the micro-batch does not divide into
        best = std::min(best, time->step_s);
        if (plan->form == TensorForm::k1d) best_1d = std::min(best_1d, time->step_s);
      }
  CHECK(found.best.time.step_s == doctest::Approx(best).epsilon(1e-9));
  CHECK(best < 0.9 * best_1d);
  CHECK(found.best.plan.form != TensorForm::k1d);
}
