// Trainings by preference losses: on any devices, with references of three kinds, resumed; and what is refused.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "preference_training.h"
#include "tests/full.h"

using namespace capi_test;

namespace {

std::string preference_report(const Trainer& trainer) {
  return capi_test::text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); });
}

// Every device's arena is as large as was said.
void check_arenas(const Trainer& trainer) {
  const std::string report = preference_report(trainer),
                    begin = "\"arena_bytes\":{\"predicted\":", middle = ",\"measured\":";
  const size_t devices = report.rfind("\"devices\":");
  int found = 0;
  for (size_t at = devices; (at = report.find(begin, at)) != std::string::npos; ++found) {
    at += begin.size();
    CHECK(std::stoll(report.substr(at)) ==
          std::stoll(report.substr(report.find(middle, at) + middle.size())));
  }
  CHECK(found > 0);
}

}  // namespace

TEST_CASE("preference losses are the same on any devices, with arenas as they were predicted") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const std::string pairs = write_pairs(scratch, "pairs.jsonl", 8);
  const std::string labelled = write_labelled(scratch, "labelled.jsonl", 8);
  const bool full = tessera::test::full();
  struct Form {
    const char *devices, *parallel;
    const char* fused_loss = "off";
  };
  std::vector<Form> forms = {{"cpu:2", "dp=2,zero=3"}, {"cpu:2", "tp=2"}, {"cpu:2", "pp=2,mb=2"}};
  if (full)
    forms.insert(forms.end(), {{"cpu:1", "mb=4"},
                               {"cpu:1", "mb=2,recompute=full,offload=params+grads+optimizer"},
                               {"cpu:2", "dp=2"},
                               {"cpu:2", "dp=2,mb=2"},
                               {"cpu:2", "tp=2,sp"},
                               {"cpu:2", "cp=ring:2"},
                               {"cpu:2", "cp=ulysses:2"},
                               {"cpu:4", "dp=2,tp=2,zero=1"},
                               {"cpu:4", "pp=2,dp=2,mb=2"}});
  std::vector<const char*> losses = {"dpo", "kto"};
  if (full) losses = {"dpo", "ipo", "hinge", "robust", "orpo", "kto", "simpo", "cpo"};
  for (const char* const loss : losses) {
    PreferenceRun run{.loss = loss, .path = std::string(loss) == "kto" ? labelled : pairs};
    run.eval_fraction = 0.25;
    const Trainer alone = preference_trainer(rt, run);
    preference_step(alone);
    const double wanted = preference_step(alone).loss, held_out = evaluated(alone);
    const auto values = preference_values(alone, kPreferenceModel);
    check_arenas(alone);
    std::vector<Form> all = forms;
    for (const Form& form : forms) all.push_back({form.devices, form.parallel, "on"});
    for (const Form& form : all) {
      CAPTURE(loss);
      CAPTURE(form.parallel);
      CAPTURE(form.fused_loss);
      run.devices = form.devices, run.parallel = form.parallel;
      run.more = {{"fused_loss", std::string(form.fused_loss)}};
      const Trainer trainer = preference_trainer(rt, run);
      preference_step(trainer);
      CHECK(preference_step(trainer).loss == doctest::Approx(wanted).epsilon(1e-5));
      CHECK(evaluated(trainer) == doctest::Approx(held_out).epsilon(1e-5));
      CHECK(preference_difference(preference_values(trainer, kPreferenceModel), values) < 1e-5);
      check_arenas(trainer);
    }
  }
}

TEST_CASE("a model refers to itself as it was given, without its adapters, or to another model") {
  const Scratch scratch;
  const Runtime rt = runtime();
  PreferenceRun run{.path = write_pairs(scratch, "pairs.jsonl", 6)};
  const tsr_step first = preference_step(preference_trainer(rt, run));
  CHECK(first.loss == doctest::Approx(std::log(2.0)).epsilon(1e-6));
  CHECK(std::abs(first.reward_margin) < 1e-6);
  // Adapters that say something: the reference is what they were added to, in whatever types it is stored.
  constexpr const char* kExperts = "moe:L=1,C=32,H=4,F=32,E=4,K=2,V=256,T=64,capacity=0";
  for (const auto& [description, type] :
       {std::pair(kPreferenceModel, "f32"), {kPreferenceModel, "q8_0"}, {kExperts, "q8_0"}, {kExperts, "nf4"}}) {
    CAPTURE(description);
    CAPTURE(type);
    PreferenceRun with_file = run;
    with_file.reference = scratch / "base.tsr";
    ok(tsr_model_quantize(nullptr, described_with_bytes(description, 7).get(), with_file.reference.c_str(),
                          options({{"type", std::string(type)}}).get(), nullptr));
    tsr_model *base = nullptr, *with_adapters = nullptr;
    ok(tsr_model_load(with_file.reference.c_str(), &base));
    const Model owner(base);
    ok(tsr_model_add_adapters(base, options({{"rank", 4}}).get(), &with_adapters));
    const Model adapted(with_adapters);
    const std::vector<float> ones(32 * 4, 0.05f);
    ok(tsr_model_write(adapted.get(), "block.0.q.lora_b", tensor_f32({32, 4}, ones).get()));
    const Trainer switched = preference_trainer(rt, run, &adapted),
                  other = preference_trainer(rt, with_file, &adapted);
    for (int i = 0; i < 2; ++i) {
      const tsr_step a = preference_step(switched), b = preference_step(other);
      CHECK(a.loss == doctest::Approx(b.loss).epsilon(1e-6));
      CHECK(std::abs(a.reward_margin) > 1e-5);
      CHECK(a.reward_margin == doctest::Approx(b.reward_margin).epsilon(1e-4));
    }
  }
}

TEST_CASE(
    "log probabilities of a reference are kept in the cache, taken from it, and made again when it is "
    "broken") {
  const Scratch scratch;
  tsr_runtime* made = nullptr;
  ok(tsr_runtime_new(options({{"log_level", std::string("info")}}).get(), &made));
  const Runtime rt(made);
  PreferenceRun run{.path = write_pairs(scratch, "pairs.jsonl", 6), .cache = scratch / "cache"};
  run.reference = saved_model(scratch, "r.tsr", kPreferenceModel, 9);
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(scratch / "cache"))
      if (entry.path().extension() == ".reference") names.push_back(entry.path().string());
    return names;
  };
  const auto loss_of = [&](bool from_cache) {
    const double loss = preference_step(preference_trainer(rt, run)).loss;
    bool found = false;
    char line[512];
    int32_t level = 0;
    size_t size = 0;
    while (take(tsr_runtime_next_log(rt.get(), &level, line, sizeof line, &size)).code == TSR_OK && size > 0)
      found = found ||
              std::string(line).find("reference: log probabilities of 6 rows, from") != std::string::npos;
    CHECK(found == from_cache);
    return loss;
  };
  const double loss = loss_of(false);
  REQUIRE(files().size() == 1);
  const std::string kept = files()[0];
  CHECK(loss_of(true) == loss);
  std::filesystem::resize_file(kept, 50);
  CHECK(loss_of(false) == loss);
  CHECK(loss_of(true) == loss);
  {
    std::fstream file(kept, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(48);
    file.put('x');
  }
  CHECK(loss_of(false) == loss);
  run.reference = saved_model(scratch, "r.tsr", kPreferenceModel, 10);  // another model under the name
  CHECK(loss_of(false) != loss);
  CHECK(files().size() == 2);
  run.seed = 11;  // of the model that trains, which the reference does not read
  loss_of(true);
}

TEST_CASE("a training on preferences resumes as if it had not ended, and evaluates by its loss") {
  const Scratch scratch;
  const Runtime rt = runtime();
  PreferenceRun run{.path = write_pairs(scratch, "pairs.jsonl", 10), .optimizer = "adamw"};
  run.eval_fraction = 0.3;
  const auto begun = [&] { return preference_trainer(rt, run); };
  const Trainer whole = begun(), part = begun();
  CHECK(evaluated(whole) == doctest::Approx(std::log(2.0)).epsilon(1e-6));
  for (int i = 0; i < 2; ++i) preference_step(whole), preference_step(part);
  const std::string folder = scratch / "c";
  ok(tsr_trainer_save(part.get(), folder.c_str()));
  const Trainer resumed = begun();
  ok(tsr_trainer_resume(resumed.get(), folder.c_str()));
  tsr_step last{};
  for (int i = 0; i < 2; ++i) {
    const tsr_step a = preference_step(whole), b = preference_step(resumed);
    CHECK(a.loss == b.loss);
    CHECK(a.reward_margin == b.reward_margin);
    last = a;
  }
  CHECK(last.reward_margin > 0);
  CHECK(last.loss < std::log(2.0));
  CHECK(evaluated(resumed) == evaluated(whole));
  CHECK(preference_report(resumed).find("\"preference\":{\"chosen_reward\":") != std::string::npos);
  CHECK(preference_report(part).find("\"preference\"") == std::string::npos);  // evaluated nothing yet
}

TEST_CASE("experts' auxiliary loss is added to a preference loss, and not to its evaluation") {
  const Scratch scratch;
  const Runtime rt = runtime();
  PreferenceRun run{.path = write_pairs(scratch, "pairs.jsonl", 8)};
  run.model = "moe:L=1,C=32,H=4,F=48,E=4,K=2,V=256,T=64";
  run.eval_fraction = 0.5;
  const Trainer trainer = preference_trainer(rt, run);
  CHECK(evaluated(trainer) == doctest::Approx(std::log(2.0)).epsilon(1e-6));
  CHECK(preference_step(trainer).loss > std::log(2.0) + 1e-4);
  const Tensor offsets = tensor_f32({4}, {0, 0, 0, 0});
  CHECK(take(tsr_trainer_feed(trainer.get(), "offset", offsets.get())).message.find("from the dataset and the loss") !=
        std::string::npos);
}

TEST_CASE("preferences that cannot be trained on are refused by name, with the remedy") {
  const Scratch scratch;
  const std::string pairs = write_pairs(scratch, "pairs.jsonl", 6);
  const std::string labelled = write_labelled(scratch, "labelled.jsonl", 6);
  struct Case {
    PreferenceRun run;
    const char* words;
  };
  const auto with = [&](const char* loss, const std::string& path, std::vector<Setting> more = {}) {
    return PreferenceRun{.loss = loss, .path = path, .more = std::move(more)};
  };
  PreferenceRun other_vocabulary = with("dpo", pairs);
  other_vocabulary.reference = saved_model(scratch, "v.tsr", "llama:L=1,C=32,H=4,F=48,V=300,T=64", 1);
  PreferenceRun nowhere = with("dpo", pairs);
  nowhere.reference = scratch / "nothing.tsr";
  PreferenceRun alone = with("kto", labelled);
  alone.batch = 1;
  PreferenceRun short_context = with("dpo", pairs);
  short_context.reference = saved_model(scratch, "s.tsr", "llama:L=1,C=32,H=4,F=48,V=256,T=8", 1);
  const std::vector<Case> cases = {
      {with("dpo", labelled),
       "loss 'dpo' trains on rows of kind preference, and the dataset has rows of kind unpaired"},
      {with("kto", pairs),
       "loss 'kto' trains on rows of kind unpaired, and the dataset has rows of kind preference"},
      {other_vocabulary, "has a vocabulary of 300 tokens, the model of 256"},
      {nowhere, "nothing.tsr"},
      {short_context, "its context holds 8 tokens"},
      {alone, "option 'batch' is 1, and loss 'kto'"},
      {with("dqo", pairs), "option 'loss' is 'dqo', wanted one of cross_entropy, dpo"},
      {with("orpo", pairs, {{"reference", std::string("x")}}),
       "option 'reference' means nothing to loss 'orpo'"},
      {with("dpo", pairs, {{"simpo_gamma", 1.0}}),
       "option 'simpo_gamma' means nothing to loss 'dpo': wanted option loss simpo"},
      {with("robust", pairs, {{"label_smoothing", 0.5}}), "wanted below 0.5"},
      {with("dpo", pairs, {{"losses", std::string("ppo")}}), "wanted one of them"},
  };
  for (const Case& it : cases) {
    const Error error = refused_preference(it.run);
    CAPTURE(error.message);
    CHECK(error.code != TSR_OK);
    CHECK(error.message.find(it.words) != std::string::npos);
  }
  // Rows.
  const auto refused_row = [&](const char* row) {
    std::ofstream(scratch / "x.jsonl") << row << '\n';
    const std::string path = scratch / "x.jsonl";
    tsr_dataset* made = nullptr;
    return take(tsr_dataset_new_file(path.c_str(), byte_tokenizer().get(), options({{"seq", 16}}).get(),
                                     &made))
        .message;
  };
  const std::string same = refused_row(R"({"prompt": "a", "chosen": "bc", "rejected": "bc"})");
  CAPTURE(same);
  CHECK(same.find("'chosen' and 'rejected' are equal") != std::string::npos);
  CHECK(refused_row(R"({"prompt": "a", "chosen": "", "rejected": "bc"})").find("chosen") !=
        std::string::npos);
  CHECK(
      refused_row(R"({"prompt": "0123456789abcdef", "chosen": "x", "rejected": "y"})").find("none is left") !=
      std::string::npos);
  CHECK(refused_row(R"({"prompt": "0123456789abcd", "chosen": "xxy", "rejected": "xxz"})")
            .find("its answers are the same 16 tokens, once they are cut") != std::string::npos);
  // Packing, no data at all, and a loss of tokens on the data of another.
  tsr_trainer* made = nullptr;
  tsr_dataset* packed = nullptr;
  ok(tsr_dataset_new_file(pairs.c_str(), byte_tokenizer().get(),
                          options({{"seq", 32}, {"packing", std::string("bfd")}}).get(), &packed));
  const Dataset data(packed);
  const Options dpo = options({{"loss", std::string("dpo")}, {"seq", 32}});
  const Model model = described(kPreferenceModel);
  CHECK(take(tsr_trainer_new(runtime().get(), model.get(), data.get(), dpo.get(), &made))
            .message.find("wanted packing off") != std::string::npos);
  CHECK(take(tsr_trainer_new(runtime().get(), model.get(), nullptr, dpo.get(), &made))
            .message.find("needs a dataset with rows of kind preference") != std::string::npos);
  CHECK(take(tsr_trainer_new(runtime().get(), model.get(), bytes_dataset().get(),
                             options({{"loss", std::string("dpo")}}).get(), &made))
            .message.find("the dataset has no such rows") != std::string::npos);
}
