// Fine-tuning by every method, loss and optimizer under every parallel form: the losses and the values of one device,
// arenas as predicted, and checkpoints that are resumed on the same form bit for bit and on any other. All with
// TESSERA_TEST_FULL=1, else a few of each.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/preference_training.h"
#include "tests/capi/small_training.h"
#include "tests/capi/training_forms.h"
#include "tests/full.h"

using namespace capi_test;

namespace {

// Matrices of 64 x 64 are the smallest whose moments `adamw8` keeps in 8 bits; q4_k has blocks of 256.
constexpr const char* kFloatModel = "llama:L=2,C=64,H=4,KV=2,F=128,V=256,T=32";
constexpr const char* kBlockModel = "llama:L=2,C=256,H=4,KV=2,F=512,V=256,T=32";
constexpr int64_t kBatch = 4;

struct Method {
  const char* name;
  const char* blocks = "";   // type of the base; empty: f32
  const char* trained = "";  // option `trained`; empty: adapters, or all where `has_adapters` is not set
  bool has_adapters = true, rslora = false, dora = false;
  const char* init = "zero";
  double plus_ratio = 1;
};

const std::vector<Method>& methods() {
  static const std::vector<Method> all = {
      {.name = "full", .has_adapters = false},
      {.name = "chosen", .trained = "block.1.*,final_norm", .has_adapters = false},
      {.name = "LoRA"},
      {.name = "rsLoRA", .rslora = true},
      {.name = "DoRA", .dora = true},
      {.name = "LoRA+", .plus_ratio = 4},
      {.name = "PiSSA", .init = "pissa"},
      {.name = "QLoRA q4_0", .blocks = "q4_0"},
      {.name = "QLoRA q8_0", .blocks = "q8_0"},
      {.name = "QLoRA q4_k", .blocks = "q4_k"},
      {.name = "QLoRA nf4", .blocks = "nf4"},
      {.name = "DoRA q4_k", .blocks = "q4_k", .dora = true},
      {.name = "PiSSA nf4", .blocks = "nf4", .init = "pissa"},
  };
  return all;
}

const Method& method_of(std::string_view name) {
  return *std::ranges::find(methods(), name, [](const Method& it) { return std::string_view(it.name); });
}

constexpr ParallelForm kForms[] = {{"cpu:2", "dp=2"},
                           {"cpu:2", "tp=2"},
                           {"cpu:2", "pp=2,mb=2"},
                           {"cpu:2", "dp=2,zero=3"},
                           {"cpu:1", "mb=2,offload=params+grads+optimizer"},
                           {"cpu:2", "dp=2,zero=3,offload=params+optimizer@file"},
                           {"cpu:4", "dp=2,tp=2,zero=3"},
                           {"cpu:4", "dp=2,pp=2,mb=2,zero=1"},
                           {"cpu:2", "tp=2,sp"},
                           {"cpu:2", "cp=ring:2"},
                           {"cpu:2", "cp=ulysses:2"},
                           {"cpu:4", "tp=2,pp=2,mb=2"}};

// `loss` is an option's value, except sft and packed, which are token losses of padded and of packed rows.
struct Training {
  const char *method, *loss, *optimizer;
};

// Heads with magnitudes follow the blocks of `o`: rows of one block of 256 leave nothing to cut.
bool is_refused(const Training& it, const ParallelForm& form) {
  const std::string_view parallel = form.parallel;
  return std::string_view(it.method) == "DoRA q4_k" &&
         (parallel.find("tp=2") != std::string::npos || parallel.find("ulysses") != std::string::npos);
}

class TrainingSetup {
 public:
  TrainingSetup() : runtime_(capi_test::runtime()) {
    std::ofstream rows(scratch_ / "rows.jsonl");
    for (int i = 0; i < 16; ++i)
      rows << R"({"prompt": ")" << preference_text(3 + i % 4, i) << R"(", "completion": ")"
           << preference_text(5 + i % 6, i + 30) << "\"}\n";
    pairs_ = write_pairs(scratch_, "pairs.jsonl", 16);
    labelled_ = write_labelled(scratch_, "labelled.jsonl", 16);
  }

  const Model& model(const Method& method) {
    Model& model = models_[method.name];
    if (model != nullptr) return model;
    tsr_model* made = nullptr;
    const bool has_blocks = *method.blocks != '\0';
    model = described_with_bytes(has_blocks ? kBlockModel : kFloatModel, 5);
    if (has_blocks) {
      const std::string path = scratch_ / (std::string(method.blocks) + ".tsr").c_str();
      ok(tsr_model_quantize(nullptr, model.get(), path.c_str(),
                            options({{"type", std::string(method.blocks)}, {"pure", 1}}).get(), nullptr));
      ok(tsr_model_load(path.c_str(), &made));
      model.reset(made);
    }
    if (method.has_adapters) {
      ok(tsr_model_add_adapters(model.get(),
                                options({{"rank", 4},
                                         {"alpha", 8.0},
                                         {"rslora", method.rslora},
                                         {"dora", method.dora},
                                         {"init", std::string(method.init)}})
                                    .get(),
                                &made));
      model.reset(made);
    }
    return model;
  }

  Dataset data(const std::string& loss) const {
    const bool is_sft = loss == "sft" || loss == "packed";
    const std::string path = is_sft ? scratch_ / "rows.jsonl" : loss == "kto" ? labelled_ : pairs_;
    tsr_dataset* made = nullptr;
    ok(tsr_dataset_new_file(path.c_str(), byte_tokenizer().get(),
                            options({{"seq", loss == "packed" ? 2 * kAnswerTokens : kAnswerTokens},
                                     {"packing", std::string(loss == "packed" ? "bfd" : "off")},
                                     {"append_end", 0},
                                     {"eval_fraction", 0.25}})
                                .get(),
                            &made));
    return Dataset(made);
  }

  // Null, with the error, where it is refused.
  Trainer trainer(const Training& it, const ParallelForm& form, Error* refusal) {
    const Method& method = method_of(it.method);
    const std::string loss = it.loss, optimizer = it.optimizer;
    const bool is_sft = loss == "sft" || loss == "packed";
    const bool is_small_step = optimizer == "adamw" || optimizer == "adamw8" || optimizer == "lion" ||
                               optimizer == "muon" || optimizer == "adafactor";
    const Options chosen = options({{"devices", std::string(form.devices)},
                                    {"parallel", std::string(form.parallel)},
                                    {"loss", is_sft ? "cross_entropy" : loss},
                                    {"optimizer", optimizer},
                                    {"lora_plus_ratio", method.plus_ratio},
                                    {"trained", std::string(method.trained)},
                                    {"lr", is_small_step ? 1e-3 : 0.1},
                                    {"warmup", 0},
                                    {"batch", kBatch}});
    tsr_trainer* made = nullptr;
    *refusal =
        take(tsr_trainer_new(runtime_.get(), model(method).get(), data(loss).get(), chosen.get(), &made));
    return Trainer(made);
  }

  std::string folder(const char* name) const { return scratch_ / name; }

 private:
  Scratch scratch_;
  Runtime runtime_;
  std::string pairs_, labelled_;
  std::map<std::string, Model> models_;
};

// One training under the forms; those that are refused, in words.
std::vector<std::string> check_forms(TrainingSetup& setup, const Training& it, std::span<const ParallelForm> forms, WorstDeviation& worst) {
  CAPTURE(std::string(it.method));
  CAPTURE(std::string(it.loss));
  CAPTURE(std::string(it.optimizer));
  const FormedTraining training{
      setup.model(method_of(it.method)), [&](const ParallelForm& form, Error* refusal) { return setup.trainer(it, form, refusal); },
      [&](const ParallelForm& form) { return is_refused(it, form); }, {.is_sgd = std::string_view(it.optimizer) == "sgd"}};
  return check_forms(training, forms, [&](const char* name) { return setup.folder(name); }, worst);
}

std::vector<Training> all_trainings() {
  std::vector<Training> all;
  for (const Method& method : methods())
    for (const char* const loss : {"sft", "packed", "dpo", "kto", "orpo"})
      all.push_back({method.name, loss, "sgd"});
  for (const char* const loss : {"ipo", "hinge", "robust", "simpo", "cpo"})
    all.push_back({"LoRA", loss, "sgd"});
  for (const char* const method : {"full", "LoRA", "DoRA", "QLoRA nf4"})
    for (const char* const optimizer : {"adamw", "adamw8", "lion", "adafactor", "muon"})
      all.push_back({method, "sft", optimizer});
  return all;
}

}  // namespace

TEST_CASE(
    "every method, loss and optimizer trains under every form as on one device, and is resumed on others") {
  TrainingSetup setup;
  WorstDeviation worst;
  size_t trainings = 0, runs = 0;
  std::map<std::string, int> refused;
  const auto check = [&](const Training& it, std::span<const ParallelForm> forms) {
    const auto words = check_forms(setup, it, forms, worst);
    ++trainings, runs += forms.size() - words.size();
    for (const std::string& each : words)
      ++refused[std::string(it.method) + ", " + it.optimizer + ", " + each];
  };
  if (tessera::test::full())
    for (const Training& it : all_trainings()) check(it, kForms);
  const Training few[] = {{"full", "sft", "muon"},   {"chosen", "orpo", "adamw"},
                          {"LoRA", "dpo", "adamw8"}, {"DoRA", "packed", "lion"},
                          {"PiSSA", "kto", "sgd"},   {"QLoRA nf4", "packed", "sgd"}};
  if (!tessera::test::full())
    for (size_t i = 0; i < std::size(few); ++i) check(few[i], std::span(kForms).subspan(i, 1));
  std::printf(
      "forms | %zu trainings, %zu runs under forms: losses within %.1e, values within %.1e (sgd); of others "
      "%.1e beyond 1e-5\n",
      trainings, runs, worst.loss, worst.value, worst.far_share);
  for (const auto& [words, times] : refused)
    std::printf("forms | refused %d times: %s\n", times, words.c_str());
}
