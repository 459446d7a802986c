// Plans for generating text on hardware that is absent: prices behave as they should, and the search finds what enumeration finds.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "parallel/planner/explain.h"
#include "parallel/pricing/cluster_presets.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

constexpr const char* kLlama8 = "llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=8192";
constexpr const char* kLlama70 = "llama:L=80,C=8192,H=64,KV=8,F=28672,V=128256,T=8192";
constexpr const char* kUntied = "gpt2:L=13,C=2048,H=16,V=128000,T=4096,tied=0";

GenerationPrices prices_of(const std::string& model, const Cluster& cluster,
                           const GenerationWork& work = {}) {
  return ok(GenerationPrices::create(ok(build_model(ok(parse_shorthand(model)))), cluster, work));
}

Result<GenerationResult> search(const std::string& model, const Cluster& cluster,
                                const GenerationOptions& options) {
  GenerationPrices prices = prices_of(model, cluster, options.work);
  return search_generation(prices, options);
}

Result<GenerationResult> search(const std::string& model, const std::string& cluster,
                                const GenerationOptions& options) {
  return search(model, ok(cluster_preset(cluster)), options);
}

// The number in "(123 bytes)".
int64_t bytes_in(const std::string& message) {
  const size_t end = message.find(" bytes)"), begin = message.rfind('(', end);
  REQUIRE(end != std::string::npos);
  return *parse_i64(message.substr(begin + 1, end - begin - 1));
}

}  // namespace

TEST_SUITE("generation") {
  TEST_CASE("a token of one sequence takes at least as long as reading the weights, and not twice as long") {
    const Cluster one = ok(cluster_preset("dgx-h100:1"));
    GenerationPrices prices = prices_of(kLlama8, one);
    const GenerationTime time = ok(prices.time({}));
    const double weights = 2.0 * static_cast<double>(prices.parameters() - 128256 * 4096);
    const double reading = weights / one.kinds[0].memory_bytes_per_s;
    CHECK(time.token_s > reading);
    CHECK(time.token_s < 2 * reading);
    // Keys and values: 2 * 8 heads * 128 * 2 bytes a token and block.
    CHECK(time.kv_bytes == int64_t{640} * 32 * 4096);
    // Norms are f32.
    CHECK(static_cast<double>(time.memory.parameters) ==
          doctest::Approx(2.0 * static_cast<double>(prices.parameters())).epsilon(1e-4));
    CHECK(time.request_s == doctest::Approx(time.first_token_s + 127 * time.token_s));
  }

  TEST_CASE(
      "latency spreads a model over tensor parallelism; throughput keeps replicas and fills their memory") {
    const Cluster cluster = ok(cluster_preset("dgx-h100:8"));
    GenerationOptions options;
    const GenerationResult latency = ok(search(kLlama8, cluster, options));
    CHECK(latency.best.plan.tp > 1);
    CHECK(latency.gap == 0);
    options.throughput = true;
    const GenerationResult throughput = ok(search(kLlama8, cluster, options));
    MESSAGE(to_text(latency.best.plan), " ", latency.best.time.request_s, " s; ",
            to_text(throughput.best.plan), " ", throughput.best.time.tokens_per_s, " tokens/s, gap ",
            throughput.gap, ", ", throughput.priced, " priced");
    CHECK(throughput.best.plan.dp > latency.best.plan.dp);
    CHECK(throughput.best.plan.batch > 16);
    CHECK(throughput.best.time.tokens_per_s > 10 * latency.best.time.tokens_per_s);
    CHECK(throughput.gap < 2e-3);
    CHECK(throughput.best.time.memory.total() <= cluster.kinds[0].memory_bytes);
    CHECK(latency.best.time.request_s < throughput.best.time.request_s);
  }

  TEST_CASE("every family that can be served has a plan") {
    GenerationOptions options;
    options.work = {128, 64, DType::kBF16};
    for (const char* model :
         {"gpt2:L=6,C=768,H=12,V=50257,T=1024", "moe:L=6,C=1024,H=16,KV=4,F=2048,E=8,K=2,V=32000,T=4096",
          "gemma3:L=12,C=512,H=8,KV=2,D=64,F=2048,V=32000,T=8192,window=64,tied,rope_half",
          "deepseek2:L=6,C=512,H=8,D=96,R=32,KA=128,VD=64,F=256,E=8,K=2,FS=256,FD=1024,V=32000,T=4096",
          "qwen3moe:L=4,C=512,H=8,KV=2,D=64,F=256,E=16,K=4,V=32000,T=4096,rope_half"})
      for (const bool throughput : {false, true}) {
        CAPTURE(model);
        options.throughput = throughput;
        options.kv_budget = int64_t{16} << 20;
        const GenerationResult found = ok(search(model, "dgx-h100:2", options));
        CHECK(found.best.time.memory.caches > 0);
        CHECK(found.best.time.cache_s > 0);
        CHECK(found.gap < (throughput ? 0.05 : 1e-12));  // of tiny models very many sequences fit
      }
    const Graph encoder = ok(build_model(ok(parse_shorthand("bert:L=2,C=64,H=2,F=64,V=100,T=64"))));
    CHECK(!GenerationPrices::create(encoder, ok(cluster_preset("dgx-h100:1")), {16, 16, DType::kBF16}).ok());
  }

  TEST_CASE("windows and latent vectors keep fewer bytes of a text") {
    const Cluster one = ok(cluster_preset("dgx-h100:1"));
    const GenerationWork work{512, 3584, DType::kBF16};
    const std::string gemma = "gemma3:L=12,C=512,H=8,KV=2,D=64,F=2048,V=32000,T=8192,tied,rope_half,window=";
    const int64_t narrow = ok(prices_of(gemma + "128", one, work).time({})).kv_bytes;
    const int64_t wide = ok(prices_of(gemma + "8192", one, work).time({})).kv_bytes;
    // Two of twelve layers see all of 64 pages; the others three of the window, and eight of the prompt.
    CHECK(wide == int64_t{12} * 64 * 64 * 2 * 2 * 64 * 2);
    CHECK(narrow == int64_t{2 * 64 + 10 * (3 + 8)} * 64 * 2 * 2 * 64 * 2);
  }

  TEST_CASE(
      "a budget for keys and values is kept and costs throughput, and what cannot fit says what it needs") {
    GenerationOptions options;
    options.throughput = true;
    const double free = ok(search(kLlama70, "dgx-a100-80gb:8", options)).best.time.tokens_per_s;
    options.kv_budget = int64_t{4} << 30;
    const GenerationResult tight = ok(search(kLlama70, "dgx-a100-80gb:8", options));
    CHECK(tight.best.time.kv_bytes <= options.kv_budget);
    CHECK(tight.best.time.tokens_per_s < free);
    options.context = 8192;
    options.work.prompt = 8192;
    CHECK(search(kLlama70, "dgx-a100-80gb:8", options).status().code() == StatusCode::kInvalidArgument);
  }

  TEST_CASE("the search for serving finds what enumerating every mesh, batch and prefill finds") {
    for (const bool throughput : {false, true})
      for (const int32_t devices : {1, 3, 4}) {
        const Cluster cluster = ok(cluster_preset(format("dgx-a100-80gb:{}", devices)));
        GenerationOptions options;
        options.throughput = throughput;
        options.batch = throughput ? 0 : 6;
        options.memory_limit = (int64_t{3} << 30) + (int64_t{1200} << 20);
        options.work = {256, 64, DType::kBF16};
        GenerationPrices prices =
            prices_of("llama:L=6,C=2048,H=16,KV=4,F=5632,V=32000,T=2048", cluster, options.work);
        double best = throughput ? 0 : INFINITY;
        for (const int32_t tp : {1, 2, 4})
          for (int32_t pp = 1; tp * pp <= devices; ++pp)
            for (int32_t dp = 1; tp * pp * dp <= devices; ++dp)
              for (int64_t batch = 1; batch <= 64; ++batch) {
                if (throughput ? batch % pp != 0 : batch * dp != 6) continue;
                for (int64_t at_once = 1; at_once < 2 * batch; at_once *= 2) {
                  if (throughput && at_once > batch) break;
                  const GenerationTime time = ok(prices.time({tp, pp, dp, batch, at_once}));
                  if (time.memory.total() > options.memory_limit) continue;
                  best = throughput ? std::max(best, time.tokens_per_s) : std::min(best, time.request_s);
                }
              }
        const GenerationResult found = ok(search_generation(prices, options));
        if (throughput) {
          CHECK(found.best.time.tokens_per_s >= best * (1 - 1.1e-3));
          CHECK(found.bound >= best * (1 - 1e-12));
        } else {
          // A product of a few more rows may fill its tiles better, and take less.
          CHECK(found.best.time.request_s <= best * 1.01);
          CHECK(found.best.time.request_s >= best * (1 - 1e-12));
        }
      }
  }

  TEST_CASE("more devices, more memory or faster links never make serving slower") {
    GenerationOptions options;
    options.throughput = true;
    double last = 0;
    for (const int32_t devices : {4, 6, 8, 16}) {
      const double now =
          ok(search(kLlama70, format("dgx-a100-80gb:{}", devices), options)).best.time.tokens_per_s;
      CHECK(now >= last * (1 - 1.1e-3));
      last = now;
    }
    options.throughput = false;
    double slow = INFINITY;
    for (const int64_t gib : {40, 60, 80}) {
      options.memory_limit = gib << 30;
      const double now = ok(search(kLlama70, "dgx-a100-80gb:8", options)).best.time.request_s;
      CHECK(now <= slow);
      slow = now;
    }
    Cluster faster = ok(cluster_preset("dgx-a100-80gb:8"));
    for (GroupLink& link : faster.node_links) link.link.bytes_per_s *= 2, link.link.latency_s /= 2;
    faster.link.bytes_per_s *= 2, faster.link.latency_s /= 2;
    CHECK(ok(search(kLlama70, faster, options)).best.time.request_s <= slow);
  }

  TEST_CASE("large clusters are searched, too") {
    GenerationOptions options;
    for (const bool throughput : {false, true})
      for (const std::string cluster : {"dgx-h100:64", "dgx-a100-80gb:64", "dgx-h100:1024"}) {
        options.throughput = throughput;
        const GenerationResult found = ok(search(kLlama70, cluster, options));
        MESSAGE(to_text(found.best.plan), " ", found.best.time.tokens_per_s, " tokens/s, gap ", found.gap);
        CHECK(found.gap < 0.05);
      }
  }

  TEST_CASE("the plan's own words pin it again") {
    GenerationOptions options;
    options.throughput = true;
    const GenerationResult found = ok(search(kLlama8, "dgx-h100:8", options));
    const GenerationPlan& plan = found.best.plan;
    options.tp = plan.tp, options.pp = plan.pp, options.dp = plan.dp;
    options.replica_batch = plan.batch, options.prefill_batch = plan.prefill_batch;
    const GenerationResult again = ok(search(kLlama8, "dgx-h100:8", options));
    CHECK(again.best.plan == plan);
    CHECK(again.best.time.tokens_per_s == found.best.time.tokens_per_s);
  }

  TEST_CASE("a request's time and a device's memory by cause add up, whatever the mesh and the objective") {
    struct Case {
      const char *model, *cluster;
      GenerationOptions options;
    };
    GenerationOptions latency, throughput, pipeline, replicas;
    latency.batch = 4;
    throughput.throughput = true;
    pipeline.pp = 4, pipeline.throughput = true, pipeline.work = {200, 50, DType::kF16};
    replicas.tp = 1, replicas.pp = 3, replicas.dp = 2, replicas.replica_batch = 6, replicas.prefill_batch = 2;
    for (const Case& c :
         {Case{kLlama8, "dgx-h100:8", latency}, Case{kLlama70, "dgx-a100-80gb:8", throughput},
          Case{kLlama70, "dgx-a100-80gb:8", pipeline}, Case{kUntied, "pcie-rtx-4090:8", replicas}}) {
      CAPTURE(c.cluster);
      GenerationPrices prices = prices_of(c.model, ok(cluster_preset(c.cluster)), c.options.work);
      const GenerationResult found = ok(search_generation(prices, c.options));
      const Explanation it = ok(explain_generation(prices, c.options, found));
      const GenerationTime& time = found.best.time;
      std::map<std::string, double> phases;
      for (const TimeShare& share : it.time) {
        CHECK(share.seconds > 0);
        phases[share.phase] += share.seconds;
      }
      // Doubles added up in another order.
      CHECK(phases["prefill"] == doctest::Approx(time.first_token_s).epsilon(1e-9));
      CHECK(phases["prefill"] + phases["decode"] == doctest::Approx(time.request_s).epsilon(1e-9));
      CHECK(phases.size() == 2);
      int64_t bytes = 0, tensors = 0;
      for (const MemoryShare& share : it.memory) bytes += share.bytes;
      CHECK(bytes == time.memory.total());
      CHECK(it.memory_bytes == bytes);
      CHECK(std::ranges::max(it.bytes_by_device) == bytes);
      CHECK(it.bytes_by_device.size() == static_cast<size_t>(found.best.plan.pp));
      for (const ExplainedTensor& tensor : it.tensors) tensors += tensor.bytes * tensor.count;
      if (found.best.plan.pp == 1) CHECK(tensors == time.memory.parameters + time.memory.caches);
      REQUIRE(it.serving);
      CHECK(it.serving->sequences == found.best.plan.dp * found.best.plan.batch);
      CHECK(it.gap == found.gap);
      // Drawn spans keep to their row one after the other, and end in its last round.
      REQUIRE(it.timeline.complete);
      std::map<int32_t, int64_t> free;
      int64_t end = 0;
      for (const TimelineSpan& span : it.timeline.spans) {
        CHECK(span.begin_ns >= free[span.row]);
        free[span.row] = span.end_ns;
        end = std::max(end, span.end_ns);
      }
      // The last round, in which the last group need not wait for its turn; rounded to nanoseconds.
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
      CHECK(blocks == prices.blocks());
      // Runners-up lose something or do not fit.
      for (const RunnerUp& other : it.runners_up) {
        if (other.over_bytes > 0)
          CHECK((other.bytes == it.memory_limit + other.over_bytes && !other.why.empty()));
        else if (it.serving->throughput)
          CHECK(other.tokens_per_s <= it.serving->tokens_per_s);
      }
      const std::string all = join(it.reasons, "\n");
      CHECK(all.find("of weights alone takes") != std::string::npos);
    }
  }

  TEST_CASE("when no serving plan fits, the limit and the number of devices named are the smallest that do") {
    struct Case {
      const char *model, *preset;
      int32_t devices;
      GenerationOptions options;
    };
    GenerationOptions plain, many, pinned, budget;
    many.batch = 96, many.work = {4000, 96, DType::kBF16};
    pinned.tp = 2, pinned.replica_batch = 3;
    budget.throughput = true, budget.kv_budget = int64_t{128} << 20;
    for (const Case& c :
         {Case{kLlama70, "dgx-a100-80gb", 1, plain}, Case{kLlama70, "pcie-rtx-4090", 4, many},
          Case{kLlama70, "pcie-rtx-4090", 3, pinned}, Case{kLlama70, "dgx-a100-40gb", 2, budget},
          Case{kUntied, "pcie-rtx-5000", 1, many}}) {
      const std::string cluster = format("{}:{}", c.preset, c.devices);
      CAPTURE(cluster);
      const auto refused = search(c.model, cluster, c.options);
      REQUIRE(!refused.ok());
      CHECK(refused.status().code() == StatusCode::kOutOfMemory);
      const std::string message(refused.status().message());
      MESSAGE(message);
      for (const char* part : {"weights", "keys and values", "prompts at work"})
        CHECK(message.find(part) != std::string::npos);
      GenerationOptions options = c.options;
      options.memory_limit = bytes_in(message);
      CHECK(search(c.model, cluster, options).ok());
      --options.memory_limit;
      CHECK(!search(c.model, cluster, options).ok());
      const size_t at = message.find("would do is ");
      REQUIRE(at != std::string::npos);
      const auto fewest = parse_i64(message.substr(at + 12, message.find(',', at) - at - 12));
      REQUIRE(fewest);
      CHECK(search(c.model, format("{}:{}", c.preset, *fewest), c.options).ok());
      CHECK(!search(c.model, format("{}:{}", c.preset, *fewest - 1), c.options).ok());
    }
  }

  TEST_CASE("a budget for keys and values that nothing keeps is named as such") {
    GenerationOptions options;
    options.kv_budget = 1 << 20;
    const auto refused = search(kLlama8, "dgx-h100:2", options);
    REQUIRE(!refused.ok());
    const std::string message(refused.status().message());
    REQUIRE(message.find("the smallest budget that works is") != std::string::npos);
    options.kv_budget = bytes_in(message);
    CHECK(search(kLlama8, "dgx-h100:2", options).ok());
    --options.kv_budget;
    CHECK(!search(kLlama8, "dgx-h100:2", options).ok());
  }

  TEST_CASE("of several parts the best one's plan is taken, the others are idle") {
    GenerationOptions options;
    const Cluster clusters[] = {ok(cluster_preset("dgx-a100-80gb:8")), ok(cluster_preset("dgx-h100:8"))};
    std::vector<GenerationPrices> parts;
    for (const Cluster& part : clusters) parts.push_back(prices_of(kLlama8, part));
    const GenerationResult found = ok(search_generation(parts, options));
    CHECK(found.part == 1);
    CHECK(found.used.find("8 ") == 0);
    CHECK(found.best.time.request_s == ok(search(kLlama8, clusters[1], options)).best.time.request_s);
    CHECK(!found.idle.empty());
  }
}
