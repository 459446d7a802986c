// What users add to a training step, under every form: clipping, accumulation, dropout, frozen parameters;
// and extents that divide by nothing.
#include <doctest/doctest.h>

#include <cmath>

#include "graph/base/text.h"
#include "tests/conformance/parity_forms.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

constexpr std::string_view kGpt2 = "gpt2:L=2,C=32,H=8,V=61,T=16";
constexpr std::string_view kLlama = "llama:L=2,C=32,H=8,KV=4,F=52,V=61,T=16,tied=0";

// One of every form.
const std::vector<Form> kSample = {
    {"dp=3", 3},
    {"dp=2,mb=2", 2},
    {"tp=3", 3},
    {"tp=2,sp", 2},
    {"dp=2,zero=1,mb=3", 2},
    {"dp=2,zero=2,mb=2", 2},
    {"dp=3,zero=3,mb=2", 3},
    {"dp=4,zero=3:2", 4},
    {"dp=2,tp=2,sp,zero=3,mb=3", 4},
    {"tp=2d:2x2", 4},
    {"tp=2.5d:2x2x2", 8},
    {"tp=3d:2x2x2", 8},
    {"cp=ring:3", 3},
    {"cp=ulysses:2", 2},
    {"dp=2,cp=ring:2,tp=2,sp", 8},
    {"dp=2,zero=3,chunks=3", 2},
    {"dp=2,recompute=full", 2},
    {"dp=2,zero=3,mb=3,recompute=full", 2},
    {"dp=2,zero=1,offload=optimizer", 2},
    {"dp=2,offload=activations", 2},
    {"pp=2:1f1b,mb=3", 2, Needs::kLayers},
    {"pp=2:interleaved:2,mb=4", 2, Needs::kLayers},
    {"pp=2:zb-v,mb=3", 2, Needs::kLayers},
    {"dp=2,pp=2:zb-h1,zero=2,mb=2", 4, Needs::kLayers},
};

void check_sample(Job job, std::string_view what) {
  print_header();
  const std::string two_layers = job.model;
  for (const Form& form : kSample) {
    job.model = form.needs == Needs::kLayers ? two_layers.substr(0, two_layers.find("L=2")) + "L=4" +
                                                   two_layers.substr(two_layers.find("L=2") + 3)
                                             : two_layers;
    Row row = measure(job, form.words, {}, format("{}: {}", what, form.words));
    row.devices = form.devices;
    check(row);
  }
}

}  // namespace

TEST_SUITE("parity variants") {
  TEST_CASE("a bound on the gradient norm scales alike under every form") {
    const Job job{.model = std::string(kLlama), .clip_norm = 0.05};
    // The bound must bind.
    const Outcome& single = on_one_device(job);
    REQUIRE(single.error == "ok");
    double squares = 0;
    for (const auto& [name, values] : single.gradients)
      for (const double value : values) squares += value * value;
    REQUIRE(std::sqrt(squares) > 2 * job.clip_norm);
    check_sample(job, "clip");
  }

  TEST_CASE("a scaled loss changes no bit of training, and trains alike under every form") {
    Job plain{.model = std::string(kLlama), .clip_norm = 0.05, .gradients = false}, scaled = plain;
    scaled.loss_scaling = 65536;
    for (const std::string_view words : {"single", "tp=2,zero=1", "dp=2,zero=3,mb=2", "pp=2:1f1b,mb=3"}) {
      CAPTURE(words);
      plain.fused_loss = scaled.fused_loss = words != "single";
      const Outcome without = run(plain, words), with = run(scaled, words);
      REQUIRE_MESSAGE(without.error == "ok", without.error);
      REQUIRE_MESSAGE(with.error == "ok", with.error);
      CHECK(with.losses == without.losses);
      CHECK(with.weights == without.weights);
    }
    check_sample({.model = std::string(kLlama), .clip_norm = 0.05, .loss_scaling = 1024}, "scaled");
  }

  // Squares of gradients times 2^80 are beyond f32 in all of the 5 steps.
  TEST_CASE("steps whose scaled gradients overflow change nothing under any form") {
    const Job job{
        .model = std::string(kGpt2), .dtype = DType::kF32, .loss_scaling = 0x1p90, .gradients = false};
    for (const std::string_view words : {"single", "dp=2,zero=2", "tp=2", "pp=2:1f1b,mb=3"}) {
      CAPTURE(words);
      const Outcome out = run(job, words);
      REQUIRE_MESSAGE(out.error == "ok", out.error);
      Job still = job;
      still.loss_scaling = 0, still.lr = 0, still.optimizer = "sgd";
      CHECK(out.weights == run(still, words).weights);
    }
  }

  TEST_CASE("dropout drops the same elements under every form") {
    const Job job{.model = std::string(kGpt2), .dropout = 0.2};
    Job sure = job;
    sure.dropout = 0;
    REQUIRE(on_one_device(job).losses[0] != on_one_device(sure).losses[0]);
    check_sample(job, "dropout");
  }

  TEST_CASE("frozen parameters stay as they are and the others train alike under every form") {
    const Job job{.model = std::string(kGpt2), .trainable = {".q.", ".v.", "norm"}};
    const Outcome& single = on_one_device(job);
    REQUIRE(single.error == "ok");
    CHECK(!single.gradients.contains("block.0.fc.weight"));
    CHECK(single.gradients.contains("block.0.q.weight"));
    check_sample(job, "frozen");
  }

  TEST_CASE("of a model with low-rank adapters only those have gradients, and train alike under every form") {
    for (const std::string_view model : {kGpt2, kLlama}) {
      const Job job{.model = std::string(model), .lora = 3};
      const Outcome& single = on_one_device(job);
      REQUIRE(single.error == "ok");
      CHECK(single.gradients.contains("block.0.q.lora_b"));
      for (const auto& [name, values] : single.gradients) CHECK(name.find(".lora_") != std::string::npos);
    }
    check_sample({.model = std::string(kGpt2), .lora = 3}, "adapters");
  }

  // y = x W' + factor (x A') B' has dB = factor dW A' and dA = factor B' dW: adapters' gradients against that
  // of their matrix, which takes another way through the graph.
  // Cut in whole blocks on every dim, gathered and sent as bytes.
  TEST_CASE("adapters over frozen weights of block types train alike under every form") {
    for (const DType stored : {DType::kQ8_0, DType::kQ4_0})
      check_sample({.model = "llama:L=2,C=128,H=8,KV=4,D=32,F=192,V=61,T=16,tied=0",
                    .dtype = DType::kF32,
                    .steps = 2,
                    .lora = 2,
                    .stored_weights = stored},
                   to_text(stored));
  }

  TEST_CASE("an adapter's gradients are those of its weight, projected") {
    for (const std::string_view words : {"dp=1", "tp=2", "dp=2,zero=3"}) {
      constexpr int64_t kRank = 3;
      const Job job{.model = std::string(kGpt2), .trainable = {"block"}, .lora = kRank};
      const Outcome out = run(job, words);
      REQUIRE_MESSAGE(out.error == "ok", out.error);
      // The first step's gradients, at the values before it.
      Job still = job;
      still.lr = 0, still.steps = 1, still.optimizer = "sgd";
      const Outcome begin = run(still, words);
      REQUIRE_MESSAGE(begin.error == "ok", begin.error);
      for (const std::string name : {"block.0.q", "block.1.o", "block.0.fc", "block.1.proj"}) {
        const auto& dw = out.gradients.at(name + ".weight");
        const auto& a = begin.weights.at(name + ".lora_a");
        const auto& b = begin.weights.at(name + ".lora_b");
        const size_t r = kRank, k = a.size() / r, n = b.size() / r;
        REQUIRE(dw.size() == n * k);
        const double factor = 2;
        double worst = 0, largest = 0;
        const auto compare = [&](double found, double wanted) {
          worst = std::max(worst, std::abs(found - wanted));
          largest = std::max(largest, std::abs(wanted));
        };
        for (size_t row = 0; row < n; ++row)
          for (size_t c = 0; c < r; ++c) {
            double wanted = 0;
            for (size_t i = 0; i < k; ++i) wanted += factor * dw[row * k + i] * a[c * k + i];
            compare(out.gradients.at(name + ".lora_b")[row * r + c], wanted);
          }
        for (size_t c = 0; c < r; ++c)
          for (size_t i = 0; i < k; ++i) {
            double wanted = 0;
            for (size_t row = 0; row < n; ++row) wanted += factor * b[row * r + c] * dw[row * k + i];
            compare(out.gradients.at(name + ".lora_a")[c * k + i], wanted);
          }
        CAPTURE(name);
        CHECK(largest > 0);
        CHECK(worst <= 1e-12 * largest);  // f64, sums in another order
      }
    }
  }

  TEST_CASE("clipping, dropout and frozen parameters in f32") {
    check_sample({.model = std::string(kGpt2),
                  .dtype = DType::kF32,
                  .clip_norm = 0.05,
                  .dropout = 0.1,
                  .trainable = {"block"}},
                 "all three");
  }

  TEST_CASE("a larger model evaluates as next to its training step") {
    for (const std::string_view words : {"dp=2", "tp=2,sp", "dp=2,zero=3,mb=2", "tp=4"})
      check(measure({.model = std::string(kLlama), .evaluates = true}, words, {}, format("eval: {}", words)));
  }
}

TEST_SUITE("parity uneven") {
  TEST_CASE("extents that divide by nothing train as one device does") {
    print_header();
    struct Uneven {
      std::string words, model;
      int64_t batch, tokens;
    };
    const std::vector<Uneven> all = {
        // 25 heads on two devices.
        {"tp=2", "gpt2:L=1,C=50,H=25,F=31,V=37,T=9", 3, 7},
        {"tp=2,sp", "gpt2:L=1,C=50,H=25,F=31,V=37,T=9", 3, 7},
        {"tp=2d:2x2", "gpt2:L=1,C=50,H=25,F=31,V=37,T=9", 3, 7},
        {"cp=ulysses:2", "gpt2:L=1,C=50,H=25,F=31,V=37,T=9", 3, 7},
        // A vocabulary of 50257 on three.
        {"tp=3", "gpt2:L=1,C=6,H=3,F=8,V=50257,T=4", 1, 4},
        {"tp=3,sp", "gpt2:L=1,C=6,H=3,F=8,V=50257,T=4", 1, 4},
        {"dp=3,zero=3", "gpt2:L=1,C=6,H=3,F=8,V=50257,T=4", 3, 2},
        // A sequence of 1001 on five.
        {"tp=5,sp", "gpt2:L=1,C=10,H=5,F=12,V=11,T=1001", 1, 1001},
        {"cp=ring:5", "gpt2:L=1,C=4,H=2,F=6,V=11,T=1001", 1, 1001},
        {"cp=ring:2,tp=2", "llama:L=1,C=12,H=6,KV=3,D=2,F=7,V=13,T=11", 3, 11},
        // Micro-batches and groups of odd sizes.
        {"dp=5,zero=3:5", "llama:L=1,C=12,H=6,KV=3,D=2,F=7,V=13,T=11", 7, 5},
        {"dp=3,tp=2,sp,zero=2,mb=1", "llama:L=1,C=12,H=6,KV=3,D=2,F=7,V=13,T=11", 9, 5},
        {"pp=3:1f1b,mb=1", "gpt2:L=5,C=10,H=5,F=12,V=11,T=7", 7, 7},
    };
    for (const Uneven& it : all)
      check(measure({.model = it.model, .batch = it.batch, .tokens = it.tokens}, it.words, {},
                    format("{} {}", it.words, it.model.substr(it.model.find(':') + 1))));
  }
}
