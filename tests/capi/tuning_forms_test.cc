// Fine-tuning by every method, loss and optimizer under every parallel form: the losses and the values of one device,
// arenas as predicted, and checkpoints that are resumed on the same form bit for bit and on any other. All with
// TESSERA_TEST_FULL=1, else a few of each.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/preference_training.h"
#include "tests/capi/small_training.h"
#include "tests/full.h"

using namespace capi_test;
using Json = nlohmann::json;

namespace {

// Matrices of 64 x 64 are the smallest whose moments `adamw8` keeps in 8 bits; q4_k has blocks of 256.
constexpr const char* kFloatModel = "llama:L=2,C=64,H=4,KV=2,F=128,V=256,T=32";
constexpr const char* kBlockModel = "llama:L=2,C=256,H=4,KV=2,F=512,V=256,T=32";
constexpr int kSteps = 3;  // saved before the last
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

struct Form {
  const char *devices, *parallel;
};
constexpr Form kAlone = {"cpu:1", ""};
constexpr Form kForms[] = {{"cpu:2", "dp=2"},
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
bool is_refused(const Training& it, const Form& form) {
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
  Trainer trainer(const Training& it, const Form& form, Error* refusal) {
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

using Bytes = std::vector<char>;
using State = std::map<std::string, Bytes>;  // of all parameters

State state_of(const Trainer& trainer, const Model& model) {
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  State state;
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
    tsr_tensor* value = nullptr;
    ok(tsr_trainer_read(trainer.get(), name.c_str(), &value));
    const Tensor owner(value);
    const auto* data = static_cast<const char*>(tsr_tensor_data(value));
    state[name] = Bytes(data, data + tsr_tensor_bytes(value));
  }
  return state;
}

// Trained parameters are f32; others are equal to the bit.
struct Difference {
  double largest = 0;    // relative to the largest number of its parameter
  double far_share = 0;  // of the numbers that differ by more than 1e-5 of that
};
Difference difference(const State& found, const State& wanted) {
  Difference all;
  size_t far = 0, count = 0;
  for (const auto& [name, bytes] : wanted) {
    const Bytes& others = found.at(name);
    if (others == bytes) continue;
    REQUIRE(bytes.size() == others.size());
    std::vector<float> a(bytes.size() / sizeof(float)), b(a.size());
    std::memcpy(a.data(), others.data(), bytes.size());
    std::memcpy(b.data(), bytes.data(), bytes.size());
    double most = 0;
    for (const float value : b) most = std::max(most, std::fabs(static_cast<double>(value)));
    for (size_t i = 0; i < a.size(); ++i) {
      const double deviation = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      if (!(deviation <= 1e-5 * most)) ++far;
      if (most > 0 && !(deviation / most <= all.largest)) all.largest = deviation / most;
    }
    count += a.size();
  }
  all.far_share = count == 0 ? 0 : static_cast<double>(far) / static_cast<double>(count);
  return all;
}

void check_equal_arenas(const Trainer& trainer) {
  const Json report =
      Json::parse(text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); }));
  for (const Json& device : report["devices"]) {
    CAPTURE(device["arena_bytes"].dump());
    CHECK(device["arena_bytes"]["predicted"] == device["arena_bytes"]["measured"]);
  }
}

struct Result {
  std::vector<double> losses;  // of the steps, then held out
  State state;
};

// Steps from the first, or where it was resumed the last alone; `folder`: where it is saved before the last.
Result train(const Trainer& trainer, const Model& model, int first, const std::string& folder) {
  Result result;
  for (int step = first; step <= kSteps; ++step) {
    if (step == kSteps && !folder.empty()) ok(tsr_trainer_save(trainer.get(), folder.c_str()));
    result.losses.push_back(one_step(trainer));
  }
  result.losses.push_back(evaluated(trainer));
  result.state = state_of(trainer, model);
  return result;
}

struct Worst {
  double loss = 0, value = 0, far_share = 0;
};

void check_near(const Training& it, const Result& found, const Result& wanted, Worst& worst) {
  const size_t left = wanted.losses.size() - found.losses.size();
  for (size_t i = 0; i < found.losses.size(); ++i) {
    CHECK(found.losses[i] == doctest::Approx(wanted.losses[left + i]).epsilon(1e-5));
    worst.loss = std::max(worst.loss, std::fabs(found.losses[i] / wanted.losses[left + i] - 1));
  }
  const Difference deviation = difference(found.state, wanted.state);
  CAPTURE(deviation.largest);
  CAPTURE(deviation.far_share);
  if (std::string_view(it.optimizer) == "sgd") {
    CHECK(deviation.largest < 1e-5);
    worst.value = std::max(worst.value, deviation.largest);
  } else {
    CHECK(deviation.far_share < 0.01);
    worst.far_share = std::max(worst.far_share, deviation.far_share);
  }
}

void check_same(const Result& found, const Result& wanted) {
  const size_t left = wanted.losses.size() - found.losses.size();
  for (size_t i = 0; i < found.losses.size(); ++i) CHECK(found.losses[i] == wanted.losses[left + i]);
  for (const auto& [name, bytes] : wanted.state) {
    CAPTURE(name);
    CHECK(found.state.at(name) == bytes);
  }
}

// One training under the forms; those that are refused, in words.
std::vector<std::string> check_forms(TrainingSetup& setup, const Training& it, std::span<const Form> forms,
                                     Worst& worst) {
  CAPTURE(std::string(it.method));
  CAPTURE(std::string(it.loss));
  CAPTURE(std::string(it.optimizer));
  Error refusal;
  const Model& model = setup.model(method_of(it.method));
  const auto made = [&](const Form& form) {
    Trainer trainer = setup.trainer(it, form, &refusal);
    INFO(refusal.message);
    REQUIRE(trainer != nullptr);
    return trainer;
  };
  const auto resumed = [&](const Trainer& trainer, const std::string& folder) {
    ok(tsr_trainer_resume(trainer.get(), folder.c_str()));
    return train(trainer, model, kSteps, "");
  };
  const std::string alone_folder = setup.folder("alone");
  const Result alone = train(made(kAlone), model, 1, alone_folder);
  const Trainer alone_again = made(kAlone);
  check_same(resumed(alone_again, alone_folder), alone);
  std::string other_folder = alone_folder;  // of the form before
  std::vector<std::string> refused;
  int number = 0;
  for (const Form& form : forms) {
    CAPTURE(std::string(form.parallel));
    const std::string folder = setup.folder(++number % 2 == 0 ? "even" : "odd");
    const Trainer trainer = setup.trainer(it, form, &refusal);
    if (trainer == nullptr) {
      refused.push_back(std::string(form.parallel) + ": " + refusal.message);
      CHECK(is_refused(it, form));
      CHECK_MESSAGE(refusal.message.find("does not fit") != std::string::npos, refusal.message);
      continue;
    }
    CHECK(!is_refused(it, form));
    const Result whole = train(trainer, model, 1, folder);
    check_near(it, whole, alone, worst);
    check_equal_arenas(trainer);
    const Trainer again = made(form);
    check_same(resumed(again, folder), whole);
    check_near(it, resumed(again, other_folder), alone, worst);
    check_near(it, resumed(alone_again, folder), alone, worst);
    other_folder = folder;
  }
  return refused;
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
  Worst worst;
  size_t trainings = 0, runs = 0;
  std::map<std::string, int> refused;
  const auto check = [&](const Training& it, std::span<const Form> forms) {
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
