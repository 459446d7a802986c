// Trainings whose inputs the caller feeds, step by step.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"

namespace capi_test {

// Deterministic numbers in [-1, 1).
inline std::vector<float> noise(size_t count, uint32_t state) {
  std::vector<float> values(count);
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return values;
}

inline Trainer mlp_trainer(const Runtime& rt, const Model& model, std::initializer_list<Setting> more) {
  Options chosen = options(more);
  ok(tsr_options_set_i64(chosen.get(), "batch", 8));
  ok(tsr_options_set_f64(chosen.get(), "lr", 0.01));
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), nullptr, chosen.get(), &made));
  return Trainer(made);
}

inline void feed(const Trainer& trainer, uint32_t seed) {
  ok(tsr_trainer_feed(trainer.get(), "x", tensor_f32({8, 8}, noise(64, seed)).get()));
  ok(tsr_trainer_feed(trainer.get(), "y", tensor_f32({8, 4}, noise(32, seed + 1)).get()));
}

inline tsr_step step(const Trainer& trainer) {
  tsr_step info = {};
  info.struct_size = sizeof info;
  ok(tsr_trainer_step(trainer.get(), &info));
  return info;
}

inline std::vector<double> losses(const Trainer& trainer, int count) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) {
    feed(trainer, static_cast<uint32_t>(i % 4));
    all.push_back(step(trainer).loss);
  }
  return all;
}

inline std::vector<float> parameter(const Trainer& trainer, const char* name) {
  tsr_tensor* value = nullptr;
  ok(tsr_trainer_read(trainer.get(), name, &value));
  const Tensor owner(value);
  CHECK(std::string(tsr_tensor_name(value)) == name);
  return floats(value);
}

inline std::string report(const Trainer& trainer) {
  return text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); });
}

}  // namespace capi_test
