// Weights whose rows come in fewer whole blocks than ranks: tensor parallelism cuts them the other way, with the
// results of one device, and the plan says so.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;
using Json = nlohmann::json;

namespace {

struct Few {
  const char *description, *type, *devices, *parallel;
  std::vector<std::string> sentences;  // of the explanation
};

const std::vector<Few> kFew = {
    {"llama:L=2,C=64,H=4,KV=4,F=96,V=256,T=32,tied=0",
     "q8_0",
     "cpu:4",
     "tp=4",
     {"2 weights block.*.o q8_0[64, 64]: rows of 64 in 2 whole units of 32",
      "2 weights block.*.down q8_0[64, 96]: rows of 96 in 3 whole units of 32", "for the 4 ranks of tp"}},
    {"llama:L=2,C=64,H=4,KV=4,F=96,V=256,T=32,tied=0",
     "q8_0",
     "cpu:4",
     "tp=4,sp",
     {"block.*.o q8_0[64, 64]"}},
    // Two KV heads on four ranks, whose queries they share.
    {"llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=32,tied=1",
     "q4_0",
     "cpu:4",
     "tp=4",
     {"block.*.down q4_0[64, 96]: rows of 96 in 3 whole units of 32", "for the 4 ranks of tp+tp_group"}},
    {"llama:L=1,C=512,H=4,KV=4,F=512,V=256,T=32,tied=0",
     "q4_k_s",
     "cpu:4",
     "tp=4",
     {"block.*.down q4_k[512, 512]: rows of 512 in 2 whole units of 256"}},
    {"moe:L=1,C=64,H=4,KV=4,F=96,V=256,T=32,E=3,K=2,capacity=0,tied=0",
     "q8_0",
     "cpu:4",
     "tp=4",
     {"block.*.o q8_0[64, 64]: rows of 64 in 2 whole units of 32"}},
    // Seven heads of 16 to a KV head are no whole number of blocks.
    {"llama:L=2,C=64,H=14,KV=2,D=16,F=96,V=256,T=32,tied=0",
     "q8_0",
     "cpu:2",
     "tp=2",
     {"2 weights block.*.o q8_0[64, 224]: rows of 224 in 1 whole units of 224", "for the 2 ranks of tp"}},
};

Model quantised(const Scratch& scratch, const Few& few) {
  const std::string path = scratch / "blocks.tsr";
  ok(tsr_model_quantize(nullptr, described_with_bytes(few.description, 7).get(), path.c_str(),
                        options({{"type", std::string(few.type)}}).get(), nullptr));
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  return Model(made);
}

Trainer trainer_of(const Runtime& runtime, const Model& model, const std::string& devices,
                   const std::string& parallel, bool trains) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(),
                     repeated_text("the tiles of one mosaic lie side by side; ", 60, 16, 0.2).get(),
                     options({{"devices", devices},
                              {"parallel", parallel},
                              {"evaluate_only", int64_t{!trains}},
                              {"warmup", 0},
                              {"lr", 1e-2},
                              {"batch", 4}})
                         .get(),
                     &made));
  return Trainer(made);
}

std::vector<float> logits_of(const Runtime& runtime, const Model& model, const std::string& devices,
                             const std::string& parallel) {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(runtime.get(), model.get(),
                       options({{"devices", devices},
                                {"parallel", parallel},
                                {"activations", std::string("f32")},
                                {"temperature", 0.0},
                                {"max_tokens", 3}})
                           .get(),
                       &made));
  const Generator generator(made);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 23; ++i) prompt.push_back((i * 37 + 5) % 250);
  ok(tsr_generator_start_tokens(made, prompt.data(), prompt.size()));
  for (tsr_piece piece = {};;) {
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(made, -1, &piece));
    if (piece.kind == TSR_END) break;
  }
  tsr_tensor* logits = nullptr;
  ok(tsr_generator_logits(made, &logits));
  return floats(Tensor(logits).get());
}

}  // namespace

TEST_CASE("weights of fewer blocks than ranks compute, train and generate as on one device") {
  const Runtime runtime = capi_test::runtime();
  for (const Few& few : kFew) {
    INFO(std::string(few.description), " ", std::string(few.type), " ", std::string(few.parallel));
    const Scratch scratch;
    const Model model = quantised(scratch, few);
    const double wanted = evaluated(trainer_of(runtime, model, "cpu:1", "", false));
    CHECK(evaluated(trainer_of(runtime, model, few.devices, few.parallel, false)) ==
          doctest::Approx(wanted).epsilon(1e-5));  // sums in another order, in f32

    tsr_model* made = nullptr;
    ok(tsr_model_add_adapters(model.get(), options({{"rank", 2}}).get(), &made));
    const Model adapted(made);
    const Trainer alone = trainer_of(runtime, adapted, "cpu:1", "", true);
    const Trainer many = trainer_of(runtime, adapted, few.devices, few.parallel, true);
    for (int step = 0; step < 4; ++step)
      CHECK(one_step(many) == doctest::Approx(one_step(alone)).epsilon(1e-4));
    evaluated(many);
    const Json report =
        Json::parse(text([&](tsr_text** out) { return tsr_trainer_report(many.get(), out); }));
    for (const Json& device : report["devices"])
      CHECK(device["arena_bytes"]["measured"] == device["arena_bytes"]["predicted"]);

    tsr_plan* planned = nullptr;
    ok(tsr_trainer_plan(many.get(), &planned));
    const Plan plan(planned);
    const std::string explanation = text([&](tsr_text** out) { return tsr_plan_explain(plan.get(), out); });
    for (const std::string& sentence : few.sentences)
      CHECK_MESSAGE(explanation.find(sentence) != std::string::npos,
                    Json::parse(explanation)["reasons"].dump());

    const std::vector<float> one = logits_of(runtime, model, "cpu:1", "");
    const std::vector<float> cut = logits_of(runtime, model, few.devices, few.parallel);
    REQUIRE(one.size() == cut.size());
    for (size_t i = 0; i < one.size(); ++i) CHECK(std::abs(one[i] - cut[i]) < 1e-4f * (1 + std::abs(one[i])));
  }
}

TEST_CASE("fewer heads than ranks are refused whatever the blocks are") {
  const Scratch scratch;
  const Model model = quantised(scratch, kFew[0]);
  tsr_trainer* made = nullptr;
  const Error error = take(tsr_trainer_new(
      runtime().get(), model.get(), bytes_dataset().get(),
      options({{"devices", std::string("cpu:8")}, {"parallel", std::string("tp=8")}, {"evaluate_only", 1}})
          .get(),
      &made));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK_MESSAGE(error.message.find("come in 4 whole units of 16") != std::string::npos, error.message);
}
