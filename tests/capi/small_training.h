// A small training shared by several tests: a model by its description, and a repetitive text.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"

namespace capi_test {

inline Model described(const char* description, int64_t seed = 7) {
  tsr_model* made = nullptr;
  ok(tsr_model_new(description, options({{"seed", seed}}).get(), &made));
  return Model(made);
}

inline Tokenizer byte_tokenizer() {
  tsr_tokenizer* made = nullptr;
  ok(tsr_tokenizer_new_bytes(&made));
  return Tokenizer(made);
}

// One that generates text, a byte a token.
inline Model described_with_bytes(const char* description, int64_t seed) {
  Model model = described(description, seed);
  ok(tsr_model_set_tokenizer(model.get(), byte_tokenizer().get()));
  return model;
}

inline Dataset repeated_text(const std::string& sentence, int times, int64_t seq, double eval_fraction) {
  std::string text;
  for (int i = 0; i < times; ++i) text += sentence;
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_text(text.data(), text.size(), byte_tokenizer().get(),
                          options({{"seq", seq}, {"eval_fraction", eval_fraction}}).get(), &made));
  return Dataset(made);
}

inline Dataset bytes_dataset() {
  return repeated_text("the tiles of one mosaic lie side by side; ", 60, 32, 0.2);
}

// f64, from sin(step) on.
inline Tensor waves(std::vector<int64_t> dims, double step) {
  tsr_tensor* made = nullptr;
  ok(tsr_tensor_new(TSR_F64, static_cast<int32_t>(dims.size()), dims.data(), &made));
  auto* values = static_cast<double*>(tsr_tensor_writable(made));
  for (size_t i = 0; i < tsr_tensor_bytes(made) / sizeof(double); ++i)
    values[i] = std::sin(step * static_cast<double>(i + 1));
  return Tensor(made);
}

// Their losses.
inline double one_step(const Trainer& trainer) {
  tsr_step step{};
  step.struct_size = sizeof step;
  ok(tsr_trainer_step(trainer.get(), &step));
  return step.loss;
}
inline double evaluated(const Trainer& trainer) {
  double loss = 0;
  ok(tsr_trainer_evaluate(trainer.get(), &loss));
  return loss;
}

// Losses of 20 steps of 8 sequences on `bytes_dataset`, then of an evaluation.
inline std::vector<double> losses_of(const char* model, const char* devices, const char* precision,
                                     const char* weights = "model") {
  const Runtime runtime = capi_test::runtime();
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), described(model).get(), bytes_dataset().get(),
                     options({{"devices", std::string(devices)},
                              {"batch", 8},
                              {"steps", 20},
                              {"lr", 3e-3},
                              {"weights", std::string(weights)},
                              {"precision", std::string(precision)}})
                         .get(),
                     &made));
  const Trainer trainer(made);
  std::vector<double> losses;
  for (int i = 0; i < 20; ++i) losses.push_back(one_step(trainer));
  losses.push_back(evaluated(trainer));
  return losses;
}

}  // namespace capi_test
