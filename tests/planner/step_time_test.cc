// Properties of the analytic prediction.
#include "parallel/analytic/step_time.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/analytic/block_time.h"
#include "parallel/analytic/pipeline_replay.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

TransformerShape gpt(const char* text = "gpt2:L=32,C=4096,H=32,V=51200,T=2048") {
  return *transformer_shape(*parse_shorthand(text));
}

StepTime time_of(const char* parallel, const Cluster& cluster, int64_t batch, const char* features = "",
                 const TransformerShape& model = gpt()) {
  const auto plan = parse_foreign_plan(parallel, features);
  REQUIRE(plan.ok());
  const auto time = step_time(model, *plan, cluster, batch);
  REQUIRE_MESSAGE(time.ok(), std::string(time.status().message()));
  return *time;
}

Cluster dgx(int devices) { return *cluster_preset(format("dgx-a100-80gb:{}", devices)); }

double bubble(ForeignSchedule schedule, int32_t p, int64_t m, int32_t chunks = 1, int64_t* peak = nullptr) {
  const std::vector<StageTime> times(static_cast<size_t>(p * chunks), {1.0 / chunks, 2.0 / chunks});
  const ReplayedPipeline replay = replay_pipeline(schedule, p, chunks, m, times, 0);
  if (peak != nullptr) *peak = replay.peak_live[0];
  return 1 - 3.0 * static_cast<double>(m) / replay.makespan_s;
}

}  // namespace

TEST_CASE("replayed pipelines have the bubbles and live micro-batches of the closed forms") {
  for (const auto& [p, m] : {std::pair<int32_t, int64_t>{4, 4}, {4, 8}, {4, 16}, {8, 32}, {1, 5}, {3, 2}}) {
    const double closed = static_cast<double>(p - 1) / static_cast<double>(m + p - 1);
    int64_t gpipe = 0, one_each = 0;
    CHECK(bubble(ForeignSchedule::kGpipe, p, m, 1, &gpipe) == doctest::Approx(closed));
    CHECK(bubble(ForeignSchedule::k1F1B, p, m, 1, &one_each) == doctest::Approx(closed));
    CHECK(gpipe == m);
    CHECK(one_each == std::min<int64_t>(m, p));
  }
  for (const int32_t v : {2, 3, 4})
    CHECK(bubble(ForeignSchedule::kInterleaved, 4, 8, v) == doctest::Approx(3.0 / (v * 8 + 3)));
}

TEST_CASE("a slow stage sets the pace of a pipeline") {
  std::vector<StageTime> times(4, {1, 2});
  times[2] = {2, 4};
  const ReplayedPipeline replay = replay_pipeline(ForeignSchedule::k1F1B, 4, 1, 32, times, 0);
  CHECK(replay.makespan_s >= 32 * 6);
  CHECK(replay.makespan_s <= 32 * 6 + 3 * 3);
}

TEST_CASE("one device, one stage and one micro-batch are the plain sum") {
  const Cluster one = dgx(1);
  const TransformerShape model = gpt("gpt2:L=4,C=2048,H=16,V=51200,T=1024");
  const auto plan = parse_foreign_plan("mb=8", "");
  const BlockTime block = block_time(model, *plan, one), first = embedding_time(model, *plan, one),
                  last = head_time(model, *plan, one);
  // The embedding's small kernels wait for the host that issues them.
  const double issue_s = one.kinds[0].issue_s;
  const auto sum = [&](const BlockTime& time) {
    return std::max(
        std::max(time.forward.compute_s, time.forward.kernels * issue_s) + time.backward.compute_s,
        (time.forward.kernels + time.backward.kernels) * issue_s);
  };
  const StepTime step = time_of("mb=8", one, 8, "", model);
  CHECK(step.step_s == doctest::Approx(4 * sum(block) + sum(first) + sum(last) + step.update_s));
  CHECK(step.communication_s == 0);
  CHECK(step.bubble_s == 0);
  CHECK(step.gradients_s == 0);
}

TEST_CASE("better devices and links never make a step slower") {
  for (const char* parallel :
       {"tp=8,dp=4,pp=2:1f1b,mb=2", "tp=2,dp=32,mb=4,zero=1", "tp=4,dp=4,pp=4:gpipe,mb=1,recompute=full"}) {
    const double now = time_of(parallel, dgx(64), 512).step_s;
    for (int what = 0; what < 6; ++what) {
      CAPTURE(what);
      Cluster better = dgx(64);
      if (what == 0) better.kinds[0].memory_bytes_per_s *= 2;
      if (what == 1)
        for (MatrixRate& rate : better.kinds[0].matrix_rates) rate.flops_per_s *= 2;
      if (what == 2) better.kinds[0].launch_s = 0;
      if (what == 3) better.kinds[0].issue_s = 0;
      if (what == 4) better.network.bytes_per_s *= 2;
      if (what == 5)
        for (GroupLink& link : better.node_links) link.link.bytes_per_s *= 2, link.link.latency_s /= 2;
      CHECK(time_of(parallel, better, 512).step_s <= now);
    }
  }
}

TEST_CASE("twice the micro-batches at the same size halve the bubble's share") {
  const StepTime few = time_of("tp=8,dp=1,pp=8:1f1b,mb=1", dgx(64), 16);
  const StepTime many = time_of("tp=8,dp=1,pp=8:1f1b,mb=1", dgx(64), 32);
  CHECK(many.bubble_s == doctest::Approx(few.bubble_s).epsilon(0.01));
  CHECK(many.bubble_s / many.step_s < few.bubble_s / few.step_s);
}

TEST_CASE("recomputation costs between one and two forward passes less than nothing kept") {
  const double none = time_of("tp=8,mb=4", dgx(8), 32).step_s;
  const double selective = time_of("tp=8,mb=4,recompute=selective", dgx(8), 32, "attention=unfused").step_s;
  const double unfused = time_of("tp=8,mb=4", dgx(8), 32, "attention=unfused").step_s;
  const double full = time_of("tp=8,mb=4,recompute=full", dgx(8), 32).step_s;
  CHECK(none < full);
  CHECK(full < 1.45 * none);
  CHECK(unfused < selective);
  CHECK(selective < 1.25 * unfused);
}

TEST_CASE("features change the step as they should") {
  const Cluster cluster = dgx(64);
  const auto with = [&](const char* features) {
    return time_of("tp=8,dp=8,mb=4,recompute=full", cluster, 256, features).step_s;
  };
  CHECK(with("attention=fused") < with("attention=unfused"));
  CHECK(with("sp=on") < with("sp=off"));
  CHECK(with("dp_overlap=on") < with("dp_overlap=off"));
  CHECK(with("grad_dtype=f16,dp_overlap=off") < with("grad_dtype=f32,dp_overlap=off"));
  CHECK(with("dtype=bf16") < with("dtype=f32"));
}

TEST_CASE("interleaved stages shorten the bubble and lengthen the sends") {
  const StepTime plain = time_of("tp=8,dp=1,pp=8:1f1b,mb=1", dgx(64), 16);
  const StepTime chunks = time_of("tp=8,dp=1,pp=8:interleaved:2,mb=1", dgx(64), 16);
  CHECK(chunks.bubble_s < plain.bubble_s);
  CHECK(chunks.communication_s > plain.communication_s);
}

TEST_CASE("wave quantisation: one tile more than the device holds takes a wave more") {
  DeviceKind kind = dgx(1).kinds[0];
  kind.launch_s = 0;
  const double full = product_seconds(kind, DType::kF16, 256 * 12, 128 * 9, 8192);        // 108 tiles
  const double more = product_seconds(kind, DType::kF16, 256 * 12, 128 * 9 + 128, 8192);  // 120
  CHECK(more > 1.15 * full);
  CHECK(product_seconds(kind, DType::kF16, 8192, 8192, 8192) >= 2.0 * 8192 * 8192 * 8192 / 280e12);
}

TEST_CASE("groups count how many of their members share a node") {
  const Cluster cluster = dgx(64);
  CHECK(group_of(cluster, 8, 1).per_node == 8);
  CHECK(group_of(cluster, 16, 1).per_node == 8);
  CHECK(group_of(cluster, 8, 8).per_node == 1);
  CHECK(group_of(cluster, 16, 4).per_node == 2);
  CHECK(all_reduce_seconds(cluster, {32, 8}, 1e8) > 1.2 * all_reduce_seconds(cluster, {8, 8}, 1e8));
}

TEST_CASE("a sum over two nodes takes the message out of each once, over more nodes and in gathers twice") {
  Cluster cluster = dgx(64);
  cluster.network = {40e9, 0};
  constexpr double kBytes = 1e9, kOnce = kBytes / 40e9;
  for (GroupLink& group : cluster.node_links) group.link.latency_s = 0;
  CHECK(all_reduce_seconds(cluster, {16, 8}, kBytes) == doctest::Approx(kOnce));
  CHECK(all_reduce_seconds(cluster, {2, 1}, kBytes) == doctest::Approx(8 * kOnce));  // an eighth of the cards
  CHECK(all_reduce_seconds(cluster, {32, 8}, kBytes) == doctest::Approx(2 * kOnce * 31 / 32));
  CHECK(gather_seconds(cluster, {16, 8}, kBytes) == doctest::Approx(kOnce * 15 / 16));
}

TEST_CASE("a shape has the parameters of the graph, whatever its heads are") {
  for (const char* text :
       {"llama:L=3,C=64,H=4,KV=2,F=96,V=65,T=16", "llama:L=3,C=64,H=4,KV=2,D=40,F=96,V=65,T=16",
        "llama:L=2,C=60,H=8,KV=1,D=2,F=96,V=65,T=16,tied=1", "gpt2:L=2,C=64,H=4,V=65,T=16",
        "gpt2:L=2,C=64,H=4,V=65,T=16,tied=0", "moe:L=2,C=64,H=4,KV=2,D=40,F=96,E=4,V=65,T=16"}) {
    const ModelConfig config = *parse_shorthand(text);
    const auto graph = build_model(config);
    REQUIRE_MESSAGE(graph.ok(), std::string(graph.status().message()));
    int64_t elements = 0;
    for (const Tensor& tensor : graph->tensors()) {
      int64_t count = tensor.kind == TensorKind::kParameter ? 1 : 0;
      for (int d = 0; d < tensor.type.shape.rank(); ++d) count *= tensor.type.shape[d];
      elements += count;
    }
    CHECK_MESSAGE(gpt(text).parameters() == elements, text);
  }
}

TEST_CASE("wider heads cost time and memory, and their width is read") {
  const char *narrow = "llama:L=8,C=2048,H=16,KV=4,F=5632,V=32000,T=2048",
             *same = "llama:L=8,C=2048,H=16,KV=4,D=128,F=5632,V=32000,T=2048",
             *wide = "llama:L=8,C=2048,H=16,KV=4,D=256,F=5632,V=32000,T=2048",
             *more = "llama:L=8,C=4096,H=32,KV=8,F=5632,V=32000,T=2048";
  const auto seconds = [](const char* model) {
    return time_of("dp=8,mb=1", dgx(8), 8, "", gpt(model)).step_s;
  };
  CHECK(seconds(same) == seconds(narrow));
  CHECK(seconds(wide) > 1.05 * seconds(narrow));
  CHECK(seconds(wide) < seconds(more));
}

TEST_CASE("a shape that no graph would have, or that cannot be counted, is refused") {
  const auto refused = [](const char* text) {
    const auto shape = transformer_shape(*parse_shorthand(text));
    return shape.ok() ? std::string() : std::string(shape.status().message());
  };
  CHECK(refused("llama:L=2,C=64,H=4,F=96,V=65,T=16,KVH=2").find("'KVH' is not known") != std::string::npos);
  CHECK(refused("llama:L=2,C=64,H=4,KV=3,F=96,V=65,T=16").find("KV = 3") != std::string::npos);
  CHECK(refused("llama:L=2,C=66,H=4,F=96,V=65,T=16").find("do not divide") != std::string::npos);
  CHECK(refused("llama:L=2,C=64,H=4,F=96,V=65").find("size T is missing") != std::string::npos);
  // Sizes whose products pass 64 bits.
  CHECK(refused("llama:L=1000000,C=1000000,H=1000,F=4000000,V=65,T=16").find("parameters") !=
        std::string::npos);
  CHECK(refused("llama:L=2,C=64,H=4,F=96,V=65,T=2000000000").find("T = 2000000000") != std::string::npos);
  CHECK(refused("llama:L=1000000,C=2,H=1,F=1,V=2,T=2").empty());
}

TEST_CASE("plans that do not fit the cluster, the batch or the model are refused with what would fit") {
  const auto refused = [](const char* parallel, int64_t batch, int devices = 64) {
    const auto plan = parse_foreign_plan(parallel, "");
    if (!plan.ok()) return std::string(plan.status().message());
    const auto time = step_time(gpt(), *plan, dgx(devices), batch);
    return time.ok() ? std::string() : std::string(time.status().message());
  };
  CHECK(refused("tp=8,dp=8", 64) == "");
  CHECK(refused("tp=8,dp=16", 64).find("uses 128 devices, the cluster has 64") != std::string::npos);
  CHECK(refused("tp=8,dp=8,mb=3", 64).find("nearest batch that is: 48") != std::string::npos);
  CHECK(refused("tp=64", 64).find("H = 32 heads") != std::string::npos);
  CHECK(refused("pp=64", 64).find("L = 32 blocks") != std::string::npos);
  CHECK(refused("pp=8:interleaved:2,tp=8", 63).find("multiples of pp=8") != std::string::npos);
  CHECK(refused("pp=2:zigzag", 64).find("wanted 1f1b, gpipe, interleaved:CHUNKS, zb-h1, zb-h2 or zb-v") !=
        std::string::npos);
  CHECK(refused("td=2", 64).find("nearest: ") != std::string::npos);
  CHECK(refused("tp=2,tp=4", 64).find("given twice") != std::string::npos);
  CHECK(!parse_foreign_plan("", "attention=flash").ok());
}

TEST_CASE("presets say what is near when a name is unknown, and count devices") {
  for (const std::string& name : cluster_preset_names()) {
    CAPTURE(name);
    const auto cluster = cluster_preset(name + ":24");
    REQUIRE(cluster.ok());
    CHECK(cluster->devices.size() == 24);
    CHECK(cluster->kinds[0].memory_bytes > 0);
    CHECK(matrix_rate(cluster->kinds[0], DType::kF16) >= cluster->kinds[0].matmul_flops_per_s);
  }
  CHECK(cluster_preset("dgx-a100-80gb")->devices.size() == 8);
  CHECK(cluster_preset("a100-80gb:16")->network == cluster_preset("dgx-a100-80gb:16")->network);
  CHECK(std::string(cluster_preset("dgx-a100-80:8").status().message()).find("dgx-a100-80gb") !=
        std::string::npos);
  for (const std::string& name : cluster_preset_names())
    CHECK(std::string(cluster_preset("abacus:8").status().message()).find(name) != std::string::npos);
  CHECK(!cluster_preset("dgx-h100:0").ok());
  CHECK(!cluster_preset("dgx-h100:x").ok());
}

TEST_CASE("gradients hide behind the backward pass of their own stage") {
  // The last stage has most blocks and so most gradients; the first recomputes, and is the slowest.
  const TransformerShape model = gpt("gpt2:L=20,C=4096,H=32,V=1024,T=2048");
  Cluster cluster = dgx(32);
  cluster.network.bytes_per_s /= 4;  // so slow that some of the reduction hides nowhere
  const ForeignPlan plan = *parse_foreign_plan("tp=1,dp=16,pp=2:1f1b,mb=1", "");
  const std::vector<StageBlocks> stages = {{9, 9, 0}, {11, 0, 0}};
  constexpr int64_t kBatch = 16;
  const StageTimes times(model, plan, cluster);
  double longest = 0, wrong = 0;
  const auto passes = [&](size_t s) { return times.of(stages[s], s == 0, s == 1); };
  REQUIRE(passes(0).forward_s + passes(0).backward_s > passes(1).forward_s + passes(1).backward_s);
  for (const size_t s : {0, 1}) {
    const StageParameters own = times.counts(stages[s].blocks, s == 0, s == 1);
    longest =
        std::max(longest, after_pipeline(model, plan, cluster, 1, own, passes(s).backward_s).gradients_s);
    if (s == 1) wrong = after_pipeline(model, plan, cluster, 1, own, passes(0).backward_s).gradients_s;
  }
  REQUIRE(wrong < 0.99 * longest);
  const auto step = step_time(model, plan, cluster, kBatch, stages);
  REQUIRE_MESSAGE(step.ok(), std::string(step.status().message()));
  CHECK(step->gradients_s == longest);
}
