// Option accumulate: a step of several batches is the step of one batch of all their rows.
#include <fstream>
#include <string>
#include <vector>

#include "preference_training.h"
#include "tests/number_after.h"

using namespace capi_test;

namespace {

constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=64";
constexpr const char* kExperts = "moe:L=2,C=16,H=4,KV=2,F=24,E=4,V=256,T=64";

// Conversations of unequal lengths, in rows of 32 tokens.
Dataset conversations(const Scratch& scratch, const char* packing, double eval_fraction = 0) {
  std::ofstream file(scratch / "rows.jsonl");
  for (int i = 0; i < 48; ++i)
    file << R"({"prompt": ")" << preference_text(3 + i % 5, i) << R"(", "completion": ")"
         << preference_text(1 + 3 * (i % 7), i + 50) << "\"}\n";
  file.close();
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_file(
      (scratch / "rows.jsonl").c_str(), byte_tokenizer().get(),
      options({{"seq", 32}, {"packing", std::string(packing)}, {"eval_fraction", eval_fraction}}).get(),
      &made));
  return Dataset(made);
}

struct Form {
  const char *devices = "cpu:1", *parallel = "", *model = kModel, *fused_loss = "off";
};

Trainer trainer_of(const Runtime& rt, const Dataset& data, const Form& form, int64_t batch,
                   int64_t accumulate) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), described_with_bytes(form.model, 7).get(), data.get(),
                     options({{"devices", std::string(form.devices)},
                              {"parallel", std::string(form.parallel)},
                              {"fused_loss", std::string(form.fused_loss)},
                              {"optimizer", std::string("sgd")},
                              {"batch", batch},
                              {"accumulate", accumulate},
                              {"warmup", int64_t{0}},
                              {"lr", 0.01}})
                         .get(),
                     &made));
  return Trainer(made);
}

}  // namespace

TEST_CASE("a step of several batches is that of one batch of all their rows, on any devices") {
  const Scratch scratch;
  const Runtime rt = runtime();
  for (const char* const packing : {"off", "bfd"}) {
    const Dataset data = conversations(scratch, packing);
    for (const Form& form : {Form{}, Form{"cpu:2", "dp=2,zero=2"}, Form{"cpu:2", "tp=2", kModel, "on"},
                             Form{"cpu:2", "pp=2,mb=2"}, Form{"cpu:1", "", kExperts}}) {
      CAPTURE(packing);
      CAPTURE(form.parallel);
      CAPTURE(form.model);
      const Trainer once = trainer_of(rt, data, {.model = form.model}, 8, 1),
                    often = trainer_of(rt, data, form, 4, 2);
      for (int i = 0; i < 3; ++i) {
        const tsr_step a = preference_step(once), b = preference_step(often);
        CHECK(b.step == a.step);
        CHECK(b.loss == doctest::Approx(a.loss).epsilon(1e-6));  // sums in another order, in f32
        CHECK(b.grad_norm == doctest::Approx(a.grad_norm).epsilon(1e-5));
      }
      CHECK(preference_difference(preference_values(once, form.model), preference_values(often, form.model)) <
            1e-6);
      const std::string report = text([&](auto... out) { return tsr_trainer_report(often.get(), out...); });
      CHECK(tessera::test::number_after(report, "\"tokens_per_step\":") == 8 * 32);
      CHECK(tessera::test::number_after(report, "\"accumulate\":") == 2);
    }
  }
}

TEST_CASE("a step of several batches of pairs is that of one batch, by loss and rewards") {
  const Scratch scratch;
  const Runtime rt = runtime();
  for (const char* const loss : {"dpo", "orpo"}) {
    CAPTURE(loss);
    PreferenceRun run{.loss = loss, .path = write_pairs(scratch, "pairs.jsonl", 12)};
    const Trainer once = preference_trainer(rt, run);
    run.batch = 2;
    run.more = {{"accumulate", int64_t{2}}};
    const Trainer often = preference_trainer(rt, run);
    for (int i = 0; i < 3; ++i) {
      const tsr_step a = preference_step(once), b = preference_step(often);
      CHECK(b.loss == doctest::Approx(a.loss).epsilon(1e-6));
      CHECK(b.reward_margin == doctest::Approx(a.reward_margin).epsilon(1e-4));
      CHECK(b.reward_accuracy == doctest::Approx(a.reward_accuracy));
    }
    CHECK(preference_difference(preference_values(once, kPreferenceModel),
                                preference_values(often, kPreferenceModel)) < 1e-6);
  }
}

TEST_CASE("a training of accumulated batches resumes to the bit, and with other counts is refused") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const Dataset data = conversations(scratch, "off", 0.2);
  const Trainer whole = trainer_of(rt, data, {}, 2, 3), part = trainer_of(rt, data, {}, 2, 3);
  for (int i = 0; i < 2; ++i) preference_step(whole), preference_step(part);
  const std::string folder = scratch / "c";
  ok(tsr_trainer_save(part.get(), folder.c_str()));
  const Trainer resumed = trainer_of(rt, data, {}, 2, 3);
  ok(tsr_trainer_resume(resumed.get(), folder.c_str()));
  for (int i = 0; i < 2; ++i) CHECK(preference_step(resumed).loss == preference_step(whole).loss);
  CHECK(preference_values(resumed, kModel) == preference_values(whole, kModel));
  CHECK(evaluated(resumed) == evaluated(whole));
  const Trainer other = trainer_of(rt, data, {}, 2, 1);
  const std::string refused = take(tsr_trainer_resume(other.get(), folder.c_str())).message;
  CAPTURE(refused);
  CHECK(refused.find("made with accumulate '3', this trainer has '1'") != std::string::npos);
}

TEST_CASE("a checkpoint of another loss is refused by name, and its parameters begin a new training") {
  const Scratch scratch;
  const Runtime rt = runtime();
  PreferenceRun run{.path = write_pairs(scratch, "pairs.jsonl", 8)};
  const Trainer trained = preference_trainer(rt, run);
  preference_step(trained);
  const std::string folder = scratch / "c";
  ok(tsr_trainer_save(trained.get(), folder.c_str()));
  run.loss = "simpo";
  const Trainer other = preference_trainer(rt, run);
  const std::string refused = take(tsr_trainer_resume(other.get(), folder.c_str())).message;
  CAPTURE(refused);
  CHECK(refused.find("made with loss 'dpo', this trainer has 'simpo'") != std::string::npos);
  CHECK(refused.find("--loss dpo") != std::string::npos);
  CHECK(refused.find("--init") != std::string::npos);
  ok(tsr_trainer_load_state(other.get(), folder.c_str(), options({{"optimizer", 0}}).get()));
  CHECK(preference_values(other, kPreferenceModel) == preference_values(trained, kPreferenceModel));
  const Dataset text = repeated_text("the tiles of one mosaic lie side by side; ", 20, 32, 0);
  const Trainer of_tokens = trainer_of(rt, text, {.model = kPreferenceModel}, 4, 1);
  CHECK(take(tsr_trainer_resume(of_tokens.get(), folder.c_str()))
            .message.find("made with loss 'dpo', this trainer has 'cross_entropy'") != std::string::npos);
}

TEST_CASE("accumulation without a dataset, or next to steps in parts, is refused") {
  const Runtime rt = runtime();
  tsr_trainer* made = nullptr;
  const auto refused = [&](const tsr_dataset* data, const char* losses) {
    return take(tsr_trainer_new(rt.get(), described_with_bytes(kModel, 7).get(), data,
                                options({{"accumulate", 2}, {"losses", std::string(losses)}}).get(), &made))
        .message;
  };
  CHECK(refused(nullptr, "").find("there is no dataset whose batches") != std::string::npos);
  CHECK(refused(bytes_dataset().get(), "ppo").find("'accumulate' and 'losses'") != std::string::npos);
}
