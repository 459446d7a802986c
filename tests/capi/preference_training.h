// Data of the tests of preference losses: pairs, single answers with a label, and a trainer of them.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "small_training.h"

namespace capi_test {

inline constexpr const char* kPreferenceModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=64";
inline constexpr int64_t kAnswerTokens = 16;

// Text of so many bytes.
inline std::string preference_text(int length, int seed) {
  std::string made;
  for (int k = 0; k < length; ++k) made += static_cast<char>('a' + (seed * 7 + k * k + 3 * k) % 26);
  return made;
}

// `count` rows, some of whose answers are cut at kAnswerTokens.
inline std::string write_pairs(const Scratch& scratch, const char* name, int count) {
  std::ofstream file(scratch / name);
  for (int i = 0; i < count; ++i)
    file << R"({"prompt": ")" << preference_text(3 + i % 4, i) << R"(", "chosen": ")"
         << preference_text(4 + i % 6, i + 50) << R"(", "rejected": ")"
         << preference_text(3 + 2 * (i % 7), i + 90) << "\"}\n";
  return scratch / name;
}

inline std::string write_labelled(const Scratch& scratch, const char* name, int count) {
  std::ofstream file(scratch / name);
  for (int i = 0; i < count; ++i)
    file << R"({"prompt": ")" << preference_text(3 + i % 4, i) << R"(", "completion": ")"
         << preference_text(4 + i % 6, i + 50) << R"(", "label": )" << (i % 3 == 0 ? "false" : "true")
         << "}\n";
  return scratch / name;
}

inline std::string saved_model(const Scratch& scratch, const char* name, const char* description,
                               int64_t seed) {
  const Model model = described_with_bytes(description, seed);
  const std::string path = scratch / name;
  ok(tsr_model_save(model.get(), path.c_str(), nullptr));
  return path;
}

struct PreferenceRun {
  std::string loss = "dpo", path = {}, devices = "cpu:1", parallel = {}, reference = {}, cache = {},
              optimizer = "sgd";
  const char* model = kPreferenceModel;
  int64_t batch = 4, seed = 7;
  double eval_fraction = 0, beta = 0.4;
  std::vector<Setting> more = {};
};

inline Dataset preference_data(const PreferenceRun& run) {
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_file(run.path.c_str(), byte_tokenizer().get(),
                          options({{"seq", kAnswerTokens},
                                   {"shuffle", 0},
                                   {"append_end", 0},
                                   {"cache", run.cache},
                                   {"eval_fraction", run.eval_fraction}})
                              .get(),
                          &made));
  return Dataset(made);
}

inline Options preference_options(const PreferenceRun& run) {
  Options chosen = options({{"loss", run.loss},
                            {"beta", run.beta},
                            {"devices", run.devices},
                            {"parallel", run.parallel},
                            {"batch", run.batch},
                            {"optimizer", run.optimizer},
                            {"clip_norm", 0.0},
                            {"warmup", int64_t{0}},
                            {"lr", run.optimizer == "sgd" ? 0.5 : 0.01}});
  if (run.optimizer == "sgd") ok(tsr_options_set_f64(chosen.get(), "momentum", 0));
  if (!run.reference.empty()) ok(tsr_options_set_str(chosen.get(), "reference", run.reference.c_str()));
  for (const auto& [key, value] : run.more) {
    if (const auto* integer = std::get_if<int64_t>(&value))
      ok(tsr_options_set_i64(chosen.get(), key, *integer));
    if (const auto* real = std::get_if<double>(&value)) ok(tsr_options_set_f64(chosen.get(), key, *real));
    if (const auto* text = std::get_if<std::string>(&value))
      ok(tsr_options_set_str(chosen.get(), key, text->c_str()));
  }
  return chosen;
}

// A trainer of `model`, or of the run's own model.
inline Trainer preference_trainer(const Runtime& rt, const PreferenceRun& run, const Model* model = nullptr) {
  tsr_trainer* made = nullptr;
  const Model own = model == nullptr ? described_with_bytes(run.model, run.seed) : nullptr;
  ok(tsr_trainer_new(rt.get(), (model == nullptr ? own : *model).get(), preference_data(run).get(),
                     preference_options(run).get(), &made));
  return Trainer(made);
}

inline Error refused_preference(const PreferenceRun& run) {
  tsr_trainer* made = nullptr;
  return take(tsr_trainer_new(runtime().get(), described_with_bytes(run.model, run.seed).get(),
                              preference_data(run).get(), preference_options(run).get(), &made));
}

inline tsr_step preference_step(const Trainer& trainer) {
  tsr_step step{};
  step.struct_size = sizeof step;
  ok(tsr_trainer_step(trainer.get(), &step));
  return step;
}

inline std::vector<std::vector<float>> preference_values(const Trainer& trainer, const char* model) {
  const Model shape = described(model);
  size_t count = 0;
  ok(tsr_model_parameter_count(shape.get(), &count));
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(shape.get(), i, out...); });
    tsr_tensor* value = nullptr;
    ok(tsr_trainer_read(trainer.get(), name.c_str(), &value));
    values.push_back(floats(Tensor(value).get()));
  }
  return values;
}

inline double preference_difference(const std::vector<std::vector<float>>& a,
                                    const std::vector<std::vector<float>>& b) {
  double largest = 0;
  for (size_t p = 0; p < a.size(); ++p)
    for (size_t i = 0; i < a[p].size(); ++i)
      largest = std::max(largest, std::abs(double{a[p][i]} - double{b[p][i]}));
  return largest;
}

}  // namespace capi_test
