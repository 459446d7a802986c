// Plans for absent hardware whose linear layers multiply numbers of 8 bits (dtype=fp8).
#include <doctest/doctest.h>

#include <string>

#include "graph/base/text.h"
#include "parallel/analytic/block_time.h"
#include "parallel/analytic/explain_step.h"
#include "parallel/analytic/fp8_linears.h"
#include "parallel/analytic/kinds_search.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_time.h"
#include "parallel/analytic/wide_certificate.h"
#include "parallel/pricing/cluster_presets.h"
#include "parallel/pricing/joint_kind.h"

using namespace tessera;

namespace {

constexpr const char* kGpt = "gpt2:L=48,C=8192,H=64,V=51200,T=2048";
constexpr const char* kLlama = "llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=4096";

TransformerShape shape(const char* text) { return *transformer_shape(*parse_shorthand(text)); }
ForeignPlan plan_of(const char* parallel, const char* features) {
  const auto plan = parse_foreign_plan(parallel, features);
  REQUIRE_MESSAGE(plan.ok(), std::string(plan.status().message()));
  return *plan;
}

std::string refusal(const char* model, const char* parallel, const Cluster& cluster, int64_t batch) {
  const auto priced = price_step(shape(model), plan_of(parallel, "dtype=fp8"), cluster, batch);
  return priced.ok() ? "" : std::string(priced.status().message());
}

}  // namespace

TEST_CASE("dtype=fp8 is bf16 but for linear layers, whose three products go at the rate of 8-bit floats") {
  const ForeignPlan wide = plan_of("mb=4", "dtype=bf16"), narrow = plan_of("mb=4", "dtype=fp8");
  CHECK(narrow.compute_dtype == DType::kBF16);
  CHECK(narrow.fp8_linears);
  CHECK(!wide.fp8_linears);
  for (const char* text : {kGpt, kLlama}) {
    const TransformerShape model = shape(text);
    Cluster cluster = *cluster_preset("dgx-h100:1");
    DeviceKind& kind = cluster.kinds[0];
    // Products alone, at rates that do not depend on their shape.
    kind.memory_bytes_per_s = 1e30, kind.launch_s = 0, kind.multiprocessors = 0;
    const BlockTime before = block_time(model, wide, cluster), after = block_time(model, narrow, cluster);
    const double tokens = 4.0 * static_cast<double>(model.T);
    const double weights =
        static_cast<double>(model.C * (2 * model.mixed_width() + 2 * model.KV * model.head_size()) +
                            (model.gated ? 3 : 2) * model.C * model.F);
    const double saved = 2 * tokens * weights * (1 / 794e12 - 1 / 1170e12);
    CHECK(before.forward.compute_s - after.forward.compute_s == doctest::Approx(saved).epsilon(1e-9));
    CHECK(before.backward.compute_s - after.backward.compute_s == doctest::Approx(2 * saved).epsilon(1e-9));
    CHECK(before.weight.compute_s - after.weight.compute_s == doctest::Approx(saved).epsilon(1e-9));
  }
}

TEST_CASE("codes are made by kernels of their own: small products gain nothing by 8 bits") {
  const auto ratio = [](const char* model, const char* parallel) {
    const Cluster cluster = *cluster_preset("dgx-h100:1");
    const auto narrow = step_time(shape(model), plan_of(parallel, "dtype=fp8"), cluster, 4);
    const auto wide = step_time(shape(model), plan_of(parallel, "dtype=bf16"), cluster, 4);
    REQUIRE(narrow.ok());
    REQUIRE(wide.ok());
    return narrow->step_s / wide->step_s;
  };
  const double large = ratio(kGpt, "mb=4");
  CHECK(large < 0.9);
  CHECK(large > 794.0 / 1170);  // the products' own ratio
  CHECK(ratio("gpt2:L=48,C=256,H=4,V=51200,T=256", "mb=4") > 1);
}

TEST_CASE(
    "ranks that hold parts of a tensor agree on one scale: one number a tensor, over those that have parts") {
  const TransformerShape model = shape(kLlama);
  const Cluster cluster = *cluster_preset("dgx-h100:64");
  const auto scales = [&](const char* words, const char* dtype = "dtype=fp8") {
    return scale_time(model, plan_of(words, dtype), cluster);
  };
  CHECK(scales("tp=8,dp=8", "dtype=bf16").forward.collective_s == 0);
  CHECK(scales("mb=8").forward.collective_s == 0);
  const auto reduced = [&](int32_t members, int32_t stride) {
    return all_reduce_seconds(cluster, group_of(cluster, members, stride), 4);
  };
  // Whole on every rank of tp: what q, k, v and the feed-forward read; in parts: what o and down read.
  const BlockTime both = scales("tp=8,dp=8");
  CHECK(both.forward.collective_s == doctest::Approx(2 * reduced(8, 8) + 2 * reduced(64, 1)));
  // What comes back to q, k, v, gate and up, a tensor each.
  CHECK(both.backward.collective_s == doctest::Approx(2 * reduced(8, 8) + 5 * reduced(64, 1)));
  CHECK(scales("tp=8").forward.collective_s == doctest::Approx(2 * reduced(8, 1)));
  CHECK(scales("dp=4,cp=ring:2").forward.collective_s == doctest::Approx(4 * reduced(8, 1)));
  // A step has them forward and backward, and forward again where that is recomputed.
  const ForeignPlan plan = plan_of("tp=8,dp=8,mb=4", "dtype=fp8"), alone = plan_of("tp=8,mb=4", "dtype=fp8");
  const StageTimes there(model, plan, cluster), once(model, alone, cluster);
  const BlockTime more = scale_time(model, plan, cluster), less = scale_time(model, alone, cluster);
  const double forward = more.forward.collective_s - less.forward.collective_s,
               backward = more.backward.collective_s - less.backward.collective_s;
  const auto difference = [&](const StageBlocks& blocks) {
    return there.of(blocks, false, false).collective_s - once.of(blocks, false, false).collective_s;
  };
  CHECK(difference({3, 0, 0}) == doctest::Approx(3 * (forward + backward)));
  CHECK(difference({3, 3, 0}) == doctest::Approx(3 * (2 * forward + backward)));
}

TEST_CASE("backward keeps codes in place of what linear layers alone read") {
  const TransformerShape model = shape(kLlama);
  const Cluster cluster = *cluster_preset("dgx-h100:8");
  const auto kept = [&](const char* features, Recompute recompute = Recompute::kNone) {
    const ForeignPlan plan = plan_of("tp=2,mb=2", features);
    return StageTimes(model, plan, cluster).activation_bytes(recompute);
  };
  // Of every token: both norms' results (whole) and what `down` reads (half) a byte each instead of two; the
  // codes that `o` reads (half) beside what attention made.
  const int64_t tokens = 2 * 4096;
  CHECK(kept("dtype=bf16") - kept("dtype=fp8") == tokens * (2 * 4096 + 14336 / 2 - 4096 / 2));
  CHECK(kept("dtype=bf16", Recompute::kFull) == kept("dtype=fp8", Recompute::kFull));
  // Adapters read what the codes were made of.
  CHECK(kept("dtype=bf16,trainable=lora:16") == kept("dtype=fp8,trainable=lora:16"));
}

TEST_CASE("devices without such products, grids and odd extents are refused with the remedy") {
  const Cluster a100 = *cluster_preset("dgx-a100-80gb:8"), h100 = *cluster_preset("dgx-h100:8");
  for (const char* has : {"dgx-h100:8", "dgx-h200:8", "dgx-b200:8", "pcie-l40s:8", "pcie-rtx-4090:8"}) {
    CAPTURE(std::string(has));
    CHECK(refusal(kGpt, "tp=8", *cluster_preset(has), 8) == "");
  }
  for (const char* lacks : {"dgx-a100-80gb:8", "dgx-v100-32gb:8", "cpu:8"}) {
    const std::string text = refusal(kGpt, "tp=8", *cluster_preset(lacks), 8);
    CAPTURE(text);
    CHECK(text.find(cluster_preset(lacks)->kinds[0].name) != std::string::npos);
    CHECK(text.find("matrix_rates") != std::string::npos);
    CHECK(text.find("name bf16") != std::string::npos);
  }
  CHECK(refusal(kGpt, "tp=2d:2x4,mb=2", h100, 8).find("grids") != std::string::npos);
  CHECK(refusal("gpt2:L=2,C=200,H=5,V=512,T=64", "dp=8", h100, 8).find("multiples of 16 (C = 200") !=
        std::string::npos);
  CHECK(refusal("gpt2:L=2,C=208,H=13,V=512,T=64", "dp=8", h100, 8) == "");

  // The search, too, of one cluster and of several.
  StepSearchOptions options;
  options.global_batch = 64;
  options.features = plan_of("", "dtype=fp8");
  const TransformerShape model = shape(kLlama);
  CHECK(search_step(model, a100, options).status().code() == StatusCode::kUnsupported);
  CHECK(search_step(model, Fleet{{h100, a100}}, options).status().code() == StatusCode::kUnsupported);
  CHECK(search_step(model, Fleet{{h100, *cluster_preset("dgx-h200:8")}}, options).ok());
}

TEST_CASE("of two kinds together the slower rate counts, and none where one has none") {
  const DeviceKind h100 = cluster_preset("dgx-h100")->kinds[0], b200 = cluster_preset("dgx-b200")->kinds[0],
                   a100 = cluster_preset("dgx-a100-80gb")->kinds[0];
  CHECK(matrix_rate(joint_kind(h100, b200), DType::kE4M3) == 1170e12);
  CHECK(matrix_rate(joint_kind(b200, h100), DType::kE4M3) == 1170e12);
  for (const DeviceKind& kind : {joint_kind(h100, a100), joint_kind(a100, h100)})
    for (const MatrixRate& rate : kind.matrix_rates) CHECK(rate.dtype != DType::kE4M3);
}

TEST_CASE("a search with 8 bits finds a faster step, none of whose certificate's claims fails") {
  const TransformerShape model = shape(kLlama);
  const Cluster cluster = *cluster_preset("dgx-h100:64");
  StepSearchOptions options;
  options.global_batch = 256, options.wide = true, options.memory_limit = int64_t{60} << 30;
  const auto wide = search_step(model, cluster, options);
  options.features = plan_of("", "dtype=fp8");
  const auto narrow = search_step(model, cluster, options);
  REQUIRE(wide.ok());
  REQUIRE(narrow.ok());
  MESSAGE("bf16 ", to_text(wide->best.plan), " ", wide->best.time.step_s, " s, fp8 ",
          to_text(narrow->best.plan), " ", narrow->best.time.step_s, " s");
  CHECK(narrow->best.time.step_s < 0.95 * wide->best.time.step_s);
  CHECK(narrow->best.plan.form == TensorForm::k1d);
  const auto check = check_wide_certificate(model, cluster, options, wide_certificate_of(*narrow));
  CHECK_MESSAGE(check.ok(), std::string(check.status().message()));
}
