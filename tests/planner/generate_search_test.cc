// Plans for generating text on hardware that is absent: prices behave as they should, and the search finds
// what enumeration finds.
#include "parallel/analytic/generate_search.h"

#include <doctest/doctest.h>

#include <cmath>

#include "graph/base/text.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }
constexpr const char* kLlama8 = "llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=8192";
constexpr const char* kLlama70 = "llama:L=80,C=8192,H=64,KV=8,F=28672,V=128256,T=8192";

GenerateResult search(const char* model, const Cluster& cluster, const GenerateOptions& options) {
  auto found = search_generate(shape(model), cluster, options);
  REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
  return *found;
}

}  // namespace

TEST_CASE("a token of one sequence takes at least as long as reading the weights, and not twice as long") {
  const Cluster one = *cluster_preset("dgx-h100:1");
  const TransformerShape model = shape(kLlama8);
  const GenerateTime time = generate_time(model, one, {512, 128, DType::kBF16}, {});
  const double weights = 2.0 * static_cast<double>(model.parameters() - model.V * model.C);
  const double reading = weights / one.kinds[0].memory_bytes_per_s;
  CHECK(time.token_s > reading);
  CHECK(time.token_s < 2 * reading);
  // Keys and values: 2 * 8 heads * 128 * 2 bytes a token and block.
  CHECK(time.kv_bytes == int64_t{640} * 32 * 4096);
  CHECK(time.weight_bytes == doctest::Approx(2.0 * static_cast<double>(model.parameters())));
  CHECK(time.request_s == doctest::Approx(time.first_token_s + 127 * time.token_s));
}

TEST_CASE(
    "latency spreads a model over tensor parallelism; throughput keeps replicas and fills their memory") {
  const Cluster cluster = *cluster_preset("dgx-h100:8");
  GenerateOptions options;
  const auto latency = search(kLlama8, cluster, options);
  CHECK(latency.best.plan.tp > 1);
  CHECK(latency.gap == 0);
  options.throughput = true;
  const auto throughput = search(kLlama8, cluster, options);
  MESSAGE(to_text(latency.best.plan), " ", latency.best.time.request_s, " s; ", to_text(throughput.best.plan),
          " ", throughput.best.time.tokens_per_s, " tokens/s, gap ", throughput.gap);
  CHECK(throughput.best.plan.dp > latency.best.plan.dp);
  CHECK(throughput.best.plan.batch > 16);
  CHECK(throughput.best.time.tokens_per_s > 10 * latency.best.time.tokens_per_s);
  CHECK(throughput.gap < 2e-3);
  CHECK(throughput.best.time.memory_bytes <= cluster.kinds[0].memory_bytes);
  CHECK(latency.best.time.request_s < throughput.best.time.request_s);
}

TEST_CASE(
    "a budget for keys and values is kept and costs throughput, and what cannot fit says what it needs") {
  const Cluster cluster = *cluster_preset("dgx-a100-80gb:8");
  GenerateOptions options;
  options.throughput = true;
  const double free = search(kLlama70, cluster, options).best.time.tokens_per_s;
  options.kv_budget = int64_t{4} << 30;
  const auto tight = search(kLlama70, cluster, options);
  CHECK(tight.best.time.kv_bytes <= options.kv_budget);
  CHECK(tight.best.time.tokens_per_s < free);
  const auto refused = search_generate(shape(kLlama70), *cluster_preset("dgx-a100-80gb:1"), options);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == StatusCode::kOutOfMemory);
  CHECK(std::string(refused.status().message()).find("the smallest limit that works is") != std::string::npos);
  options.work.prompt = 8192;
  CHECK(search_generate(shape(kLlama70), cluster, options).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("the search for serving finds what enumerating every mesh, batch and prefill finds") {
  for (const bool throughput : {false, true})
    for (const int32_t devices : {1, 3, 4}) {
      const TransformerShape model = shape("llama:L=6,C=2048,H=16,KV=4,F=5632,V=32000,T=2048");
      const Cluster cluster = *cluster_preset(format("dgx-a100-80gb:{}", devices));
      GenerateOptions options;
      options.throughput = throughput;
      options.batch = throughput ? 0 : 6;
      options.memory_limit = (int64_t{3} << 30) + (int64_t{1200} << 20);
      options.work = {256, 64, DType::kBF16};
      double best = throughput ? 0 : INFINITY;
      for (int32_t tp = 1; tp <= devices; ++tp)
        for (int32_t pp = 1; tp * pp <= devices; ++pp)
          for (int32_t dp = 1; tp * pp * dp <= devices; ++dp)
            for (int64_t batch = 1; batch <= 64; ++batch) {
              if (!throughput && batch * dp != 6) continue;
              for (int64_t at_once = 1; at_once < 2 * batch; at_once *= 2) {
                const GeneratePlan plan{tp, pp, dp, batch, at_once};
                if (!check_generate_plan(model, cluster, options.work, plan).ok()) continue;
                const GenerateTime time = generate_time(model, cluster, options.work, plan);
                if (time.memory_bytes > options.memory_limit) continue;
                best = throughput ? std::max(best, time.tokens_per_s) : std::min(best, time.request_s);
              }
            }
      const auto found = search_generate(model, cluster, options);
      REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
      if (throughput) {
        CHECK(found->best.time.tokens_per_s >= best * (1 - 1.1e-3));
        CHECK(found->bound >= best * (1 - 1e-12));
      } else {
        CHECK(found->best.time.request_s == doctest::Approx(best).epsilon(1e-12));
      }
    }
}

TEST_CASE("more devices or memory never make serving slower") {
  GenerateOptions options;
  options.throughput = true;
  double last = 0;
  for (const int32_t devices : {4, 6, 8, 16}) {
    const double now = search(kLlama70, *cluster_preset(format("dgx-a100-80gb:{}", devices)), options)
                           .best.time.tokens_per_s;
    CHECK(now >= last * (1 - 1.1e-3));
    last = now;
  }
  options.throughput = false;
  double slow = INFINITY;
  for (const int64_t gib : {40, 60, 80}) {
    options.memory_limit = gib << 30;
    const double now = search(kLlama70, *cluster_preset("dgx-a100-80gb:8"), options).best.time.request_s;
    CHECK(now <= slow);
    slow = now;
  }
}
