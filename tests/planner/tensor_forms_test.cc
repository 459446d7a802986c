// 1d (Megatron) against 2d (SUMMA) tensor parallelism, as Optimus published it: 24 layers of 512 tokens in
// f32, four Quadro RTX 5000 a node, everything recomputed. 2d has the larger batches that its memory allows;
// times are per sequence.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>

#include "graph/base/text.h"
#include "parallel/analytic/grid_time.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_time.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

constexpr const char* kFeatures = "attention=unfused,dtype=f32,grad_dtype=f32";

struct Priced {
  double train_s = 0, forward_s = 0;  // per sequence
};

Priced price(const TransformerShape& model, const std::string& tp, const Cluster& cluster, int64_t batch) {
  const auto plan = parse_foreign_plan(format("tp={},mb={},recompute=full", tp, batch), kFeatures);
  REQUIRE_MESSAGE(plan.ok(), std::string(plan.status().message()));
  const auto step = step_time(model, *plan, cluster, batch);
  REQUIRE_MESSAGE(step.ok(), std::string(step.status().message()));
  const StagePasses passes =
      StageTimes(model, *plan, cluster).of({.blocks = model.L, .full = model.L}, true, true);
  return {step->step_s / static_cast<double>(batch), passes.forward_s / static_cast<double>(batch)};
}

}  // namespace

TEST_CASE("2d tensor parallelism loses to 1d on one node and wins on many, by as much as published") {
  struct Row {
    int32_t devices, side;
    int64_t C, H, batch_1d, batch_2d;
    double published;  // training speed, 2d over 1d
  };
  constexpr Row kRows[] = {{4, 2, 2048, 32, 60, 96, 0.86},
                           {16, 4, 4096, 64, 60, 192, 1.02},
                           {36, 6, 6120, 72, 40, 288, 1.48},  // about 6144, in as many heads as 36 divides
                           {64, 8, 8192, 128, 30, 384, 1.48}};
  for (const Row& row : kRows) {
    const auto model =
        transformer_shape(*parse_shorthand(format("gpt2:L=24,C={},H={},V=51200,T=512", row.C, row.H)));
    REQUIRE(model.ok());
    const Cluster cluster = *cluster_preset(format("pcie-rtx-5000:{}", row.devices));
    const Priced one = price(*model, format("{}", row.devices), cluster, row.batch_1d);
    const Priced two = price(*model, format("2d:{}x{}", row.side, row.side), cluster, row.batch_2d);
    const double ratio = one.train_s / two.train_s, inference = one.forward_s / two.forward_s;
    std::printf(
        "%2d devices, C = %ld: 1d %.3f s, 2d %.3f s a sequence; 2d/1d %.2f (published %.2f), inference "
        "%.2f%s\n",
        row.devices, static_cast<long>(row.C), one.train_s, two.train_s, ratio, row.published, inference,
        row.devices == 64 ? " (published 1.79)" : "");
    // At 16 devices the two are published to be equal but for 2 %: no sign to predict.
    if (row.devices != 16) CHECK((ratio > 1) == (row.published > 1));
    CHECK(std::abs(ratio / row.published - 1) < 0.25);
    if (row.devices == 64) CHECK(std::abs(inference / 1.79 - 1) < 0.25);
  }
}

// Reference volumes of one product and its gradients, 64 devices, X [4096, 1024], W [1024, 4096], millions of
// elements: gathered again in backward. A link of one element a second without latency counts them; SUMMA's
// pipelined broadcasts carry a whole block where a member needs not its own, q / (q - 1) as much.
TEST_CASE("grids move the reference volumes") {
  Cluster cluster;
  cluster.kinds.push_back({.name = "counter", .matmul_flops_per_s = 1, .memory_bytes_per_s = 1});
  cluster.devices.assign(64, 0);
  cluster.link = {4e6, 0};  // f32
  const auto volume = [&](const char* tp) {
    const auto plan = parse_foreign_plan(tp, "dtype=f32");
    REQUIRE(plan.ok());
    const GridProducts products(cluster, *plan);
    Pass forward, backward, weight;
    products.forward(forward, 4096, 4096, 1024);
    products.backward(backward, weight, 4096, 4096, 1024);
    return forward.collective_s + backward.collective_s + weight.collective_s;
  };
  CHECK(volume("tp=2d:8x8") == doctest::Approx(2.75 * 8 / 7).epsilon(0.003));
  // The sum of dB over layers, 0.39 of 3.34, is no broadcast.
  CHECK(volume("tp=2.5d:4x4x4") == doctest::Approx(2.95 * 4 / 3 + 0.39).epsilon(0.003));
  CHECK(volume("tp=3d:4x4x4") == doctest::Approx(2.75).epsilon(0.003));
}

TEST_CASE("grids that do not fit the model or the batch are refused, and words come back as they went in") {
  const auto model = transformer_shape(*parse_shorthand("gpt2:L=4,C=1024,H=16,V=51200,T=512"));
  const Cluster cluster = *cluster_preset("pcie-rtx-5000:16");
  const auto refused = [&](const char* parallel) {
    const auto plan = parse_foreign_plan(parallel, kFeatures);
    if (!plan.ok()) return std::string(plan.status().message());
    const auto step = step_time(*model, *plan, cluster, 16);
    return step.ok() ? std::string() : std::string(step.status().message());
  };
  CHECK(refused("tp=2d:4x4,mb=16") == "");
  CHECK(refused("tp=2.5d:2x2x4,mb=16") == "");
  CHECK(refused("tp=2d:4x4,mb=2").find("mb=2 sequences into 4 rows") != std::string::npos);
  CHECK(refused("tp=2d:4,mb=16").find("wanted a whole number") != std::string::npos);
  CHECK(refused("tp=2.5d:2x4x2,mb=16").find("wanted a whole number") != std::string::npos);
  CHECK(refused("tp=2d:4x4,mb=16,sp").find("without sp") != std::string::npos);
  CHECK(to_text(*parse_foreign_plan("tp=2.5d:2x2x4,mb=16", "")) == "tp=2.5d:2x2x4,dp=1,pp=1,mb=16");
  CHECK(to_text(*parse_foreign_plan("tp=2d:4x4,mb=16", "")) == "tp=2d:4x4,dp=1,pp=1,mb=16");
}
