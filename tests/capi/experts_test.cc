// A mixture of experts from the first step to the last token: trained with its experts spread over devices,
// resumed under other layouts, stored, and asked to write on one device and on several.
#include "c_api.h"
#include "small_training.h"

using namespace capi_test;

namespace {

Model model() { return described_with_bytes("moe:L=2,C=32,H=4,KV=2,F=20,E=4,K=2,V=256,T=48", 3); }

Dataset words() { return repeated_text("the cat sat on the mat and the dog sat on the log. ", 60, 16, 0.1); }

Trainer trainer(const Runtime& rt, const Model& model, const Dataset& data, const char* devices,
                const char* parallel) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), data.get(),
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"batch", int64_t{8}},
                              {"lr", 1e-2}})
                         .get(),
                     &made));
  return Trainer(made);
}

std::vector<std::vector<float>> values(const Trainer& trainer) {
  std::vector<std::vector<float>> all;
  for (const std::string name :
       {"block.0.router", "block.0.experts.gate", "block.1.experts.down", "block.1.q"})
    for (const char* part : {"", ".m", ".v"}) {
      tsr_tensor* value = nullptr;
      ok(tsr_trainer_read(trainer.get(), (name + part).c_str(), &value));
      all.push_back(floats(Tensor(value).get()));
    }
  return all;
}

std::string written(const Runtime& rt, const Model& model, const char* devices, const char* parallel) {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(rt.get(), model.get(),
                       options({{"devices", std::string(devices)},
                                {"parallel", std::string(parallel)},
                                {"temperature", 0.0},
                                {"max_tokens", int64_t{24}}})
                           .get(),
                       &made));
  const Generator generator(made);
  ok(tsr_generator_start(made, "the cat", TSR_TEXT_END));
  std::string text;
  for (;;) {
    tsr_piece piece = {};
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(made, -1, &piece));
    if (piece.kind == TSR_END) return text;
    text.append(piece.text, piece.text_size);
  }
}

}  // namespace

TEST_CASE("a mixture of experts trains over devices, resumes under other layouts and writes") {
  const Runtime rt = runtime();
  const Model made = model();
  const Dataset data = words();
  const Trainer spread = trainer(rt, made, data, "cpu:4", "dp=2,ep=2,zero=1");
  const double first = one_step(spread), untrained = evaluated(spread);
  for (int i = 0; i < 50; ++i) one_step(spread);
  CHECK(one_step(spread) < 0.6 * first);
  CHECK(evaluated(spread) < 0.6 * untrained);

  const Scratch scratch;
  const std::string folder = scratch / "checkpoint";
  ok(tsr_trainer_save(spread.get(), folder.c_str()));
  const auto saved = values(spread);
  const double next = one_step(spread);
  for (const auto& [devices, parallel] :
       {std::pair{"cpu:1", ""}, {"cpu:3", "ep=3"}, {"cpu:4", "tp=2,dp=2,zero=3"}, {"cpu:2", "ep=2,mb=2"}}) {
    INFO(parallel);
    const Trainer other = trainer(rt, made, data, devices, parallel);
    ok(tsr_trainer_resume(other.get(), folder.c_str()));
    CHECK(values(other) == saved);
    CHECK(one_step(other) == doctest::Approx(next).epsilon(1e-3));
  }

  ok(tsr_trainer_resume(spread.get(), folder.c_str()));
  ok(tsr_trainer_store(spread.get(), made.get()));
  const std::string alone = written(rt, made, "cpu:1", "");
  CHECK(alone.size() == 24);
  CHECK(written(rt, made, "cpu:2", "ep=2") == alone);
  CHECK(written(rt, made, "cpu:2", "tp=2") == alone);
}
