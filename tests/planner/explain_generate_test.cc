// Explanations of serving plans: parts add up to the request and to the bytes; what is said when nothing fits
// is true.
#include "parallel/analytic/explain_generate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/base/text.h"
#include "parallel/analytic/least_generate.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }
constexpr const char* kLlama8 = "llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=8192";
constexpr const char* kLlama70 = "llama:L=80,C=8192,H=64,KV=8,F=28672,V=128256,T=8192";
constexpr const char* kUntied = "gpt2:L=13,C=2048,H=16,V=128000,T=4096,tied=0";

bool finds(const char* model, const std::string& cluster, GenerateOptions options) {
  return search_generate(shape(model), *cluster_preset(cluster), options).ok();
}

}  // namespace

TEST_CASE("a request's time and a device's memory by cause add up, whatever the mesh and the objective") {
  struct Case {
    const char *model, *cluster, *why;
    GenerateOptions options;
  };
  GenerateOptions latency, throughput, pipeline, replicas;
  latency.batch = 4;
  throughput.throughput = true;
  pipeline.pp = 4, pipeline.throughput = true, pipeline.work = {200, 50, DType::kF16};
  replicas.tp = 1, replicas.pp = 3, replicas.dp = 2, replicas.replica_batch = 6, replicas.prefill_batch = 2;
  for (const Case& c : {Case{kLlama8, "dgx-h100:8", "latency", latency},
                        Case{kLlama70, "dgx-a100-80gb:8", "throughput", throughput},
                        Case{kLlama70, "dgx-a100-80gb:8", "pipeline", pipeline},
                        Case{kUntied, "pcie-rtx-4090:8", "pinned", replicas}}) {
    CAPTURE(c.why);
    const TransformerShape model = shape(c.model);
    const Cluster cluster = *cluster_preset(c.cluster);
    const auto found = search_generate(model, cluster, c.options);
    REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
    const Explanation it = explain_generate(model, cluster, c.options, *found);
    const GenerateTime& time = found->best.time;
    std::map<std::string, double> phases;
    for (const TimeShare& share : it.time) {
      CHECK(share.seconds > 0);
      phases[share.phase] += share.seconds;
    }
    // Doubles added up in another order.
    CHECK(phases["prefill"] == doctest::Approx(time.first_token_s).epsilon(1e-9));
    CHECK(phases["prefill"] + phases["decode"] == doctest::Approx(time.request_s).epsilon(1e-9));
    CHECK(phases.size() == 2);
    int64_t bytes = 0;
    for (const MemoryShare& share : it.memory) bytes += share.bytes;
    CHECK(bytes == time.memory_bytes);
    CHECK(it.memory_bytes == bytes);
    CHECK(std::ranges::max(it.bytes_by_device) == bytes);
    CHECK(it.bytes_by_device.size() == static_cast<size_t>(found->best.plan.pp));
    REQUIRE(it.serving);
    CHECK(it.serving->sequences == found->best.plan.dp * found->best.plan.batch);
    CHECK(it.gap == found->gap);
    // Drawn spans keep to their row one after the other, and end in its last round.
    REQUIRE(it.timeline.complete);
    std::map<int32_t, int64_t> free;
    int64_t end = 0;
    for (const TimelineSpan& span : it.timeline.spans) {
      CHECK(span.begin_ns >= free[span.row]);
      free[span.row] = span.end_ns;
      end = std::max(end, span.end_ns);
    }
    // In the last round, after which the last group need not wait for its turn; rounded to nanoseconds.
    CHECK(static_cast<double>(end) <= 1e9 * time.request_s + 2);
    CHECK(static_cast<double>(end) >= 1e9 * (time.request_s - time.token_s) - 2);
    int64_t peak = 0;
    for (size_t i = 0; i < it.curve.position.size(); ++i) {
      int64_t now = 0;
      for (const auto& cause : it.curve.bytes) now += cause[i];
      peak = std::max(peak, now);
    }
    CHECK(peak == bytes);
    int64_t blocks = 0;
    for (const BlockDecision& block : it.blocks) blocks += block.count;
    CHECK(blocks == model.L);
    CHECK(!it.reasons.empty());
  }
}

TEST_CASE("runners-up of a serving plan lose something or do not fit, and memory's cost is told") {
  const TransformerShape model = shape(kLlama70);
  const Cluster cluster = *cluster_preset("dgx-a100-80gb:8");
  GenerateOptions options;
  options.throughput = true;
  const auto found = search_generate(model, cluster, options);
  REQUIRE(found.ok());
  const Explanation it = explain_generate(model, cluster, options, *found);
  bool slower = false, too_large = false;
  for (const RunnerUp& other : it.runners_up) {
    if (other.over_bytes > 0) {
      too_large = true;
      CHECK(other.bytes == it.memory_limit + other.over_bytes);
      CHECK(!other.why.empty());
    } else {
      slower = true;
      CHECK(other.tokens_per_s <= it.serving->tokens_per_s);
    }
  }
  CHECK(slower);
  CHECK(too_large);
  const std::string all = join(it.reasons, "\n");
  CHECK(all.find("of weights alone takes") != std::string::npos);
  CHECK(all.find("For latency the best is") != std::string::npos);
}

TEST_CASE("the plan's own words pin it again") {
  const TransformerShape model = shape(kLlama8);
  const Cluster cluster = *cluster_preset("dgx-h100:8");
  GenerateOptions options;
  options.throughput = true;
  const auto found = search_generate(model, cluster, options);
  REQUIRE(found.ok());
  const GeneratePlan& plan = found->best.plan;
  options.tp = plan.tp, options.pp = plan.pp, options.dp = plan.dp;
  options.replica_batch = plan.batch, options.prefill_batch = plan.prefill_batch;
  const auto again = search_generate(model, cluster, options);
  REQUIRE(again.ok());
  CHECK(again->best.plan == plan);
  CHECK(again->best.time.tokens_per_s == found->best.time.tokens_per_s);
}

TEST_CASE("when no serving plan fits, the limit and the number of devices named are the smallest that do") {
  struct Case {
    const char *model, *preset;
    int32_t devices;
    GenerateOptions options;
  };
  GenerateOptions plain, many, pinned, budget;
  many.batch = 96, many.work = {4000, 96, DType::kBF16};
  pinned.tp = 2, pinned.replica_batch = 3;
  budget.throughput = true, budget.kv_budget = int64_t{64} << 20;
  for (const Case& c :
       {Case{kLlama70, "dgx-a100-80gb", 1, plain}, Case{kLlama70, "pcie-rtx-4090", 4, many},
        Case{kLlama70, "pcie-rtx-4090", 3, pinned}, Case{kLlama70, "dgx-a100-40gb", 2, budget},
        Case{kUntied, "pcie-rtx-5000", 1, many}}) {
    const TransformerShape model = shape(c.model);
    const std::string cluster = format("{}:{}", c.preset, c.devices);
    CAPTURE(cluster);
    const auto refused = search_generate(model, *cluster_preset(cluster), c.options);
    REQUIRE(!refused.ok());
    CHECK(refused.status().code() == StatusCode::kOutOfMemory);
    const std::string message(refused.status().message());
    MESSAGE(message);
    GenerateOptions options = c.options;
    const DeviceKind kind = cluster_preset(cluster)->kinds[0];
    const LeastGenerate least = least_generate(model, kind, c.devices, options);
    if (least.bytes < INT64_MAX) {
      CHECK(message.find(format("({} bytes)", least.bytes)) != std::string::npos);
      for (const char* part : {"weights", "keys and values", "prompts at work"})
        CHECK(message.find(part) != std::string::npos);
      options.memory_limit = least.bytes;
      CHECK(finds(c.model, cluster, options));
      options.memory_limit = least.bytes - 1;
      CHECK(!finds(c.model, cluster, options));
    }
    const FewestGenerate fewest = fewest_generate(model, kind, kind.memory_bytes, c.options);
    REQUIRE(fewest.devices > c.devices);
    CHECK(message.find(format("is {}, with", fewest.devices)) != std::string::npos);
    CHECK(finds(c.model, format("{}:{}", c.preset, fewest.devices), c.options));
    CHECK(!finds(c.model, format("{}:{}", c.preset, fewest.devices - 1), c.options));
  }
}

TEST_CASE("a budget for keys and values that nothing keeps is named as such") {
  GenerateOptions options;
  options.kv_budget = 1 << 20;
  const auto refused = search_generate(shape(kLlama8), *cluster_preset("dgx-h100:2"), options);
  REQUIRE(!refused.ok());
  const std::string message(refused.status().message());
  MESSAGE(message);
  REQUIRE(message.find("the smallest budget that works is") != std::string::npos);
  const size_t open = message.find('(');
  options.kv_budget = *parse_i64(message.substr(open + 1, message.find(" bytes)") - open - 1));
  CHECK(finds(kLlama8, "dgx-h100:2", options));
  --options.kv_budget;
  CHECK(!finds(kLlama8, "dgx-h100:2", options));
}
