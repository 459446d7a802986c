// A short training under parallel forms: its losses and values are near to those of one device, its arenas are as predicted, and it
// is resumed on the same form and on others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

namespace capi_test {

inline constexpr int kFormSteps = 3;  // saved before the last

struct ParallelForm {
  const char *devices, *parallel;
};
inline constexpr ParallelForm kOneDevice = {"cpu:1", ""};

using ParameterState = std::map<std::string, std::vector<char>>;  // the bytes of all parameters

inline ParameterState state_of(const Trainer& trainer, const Model& model) {
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  ParameterState state;
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
    tsr_tensor* value = nullptr;
    ok(tsr_trainer_read(trainer.get(), name.c_str(), &value));
    const Tensor owner(value);
    const auto* data = static_cast<const char*>(tsr_tensor_data(value));
    state[name] = std::vector<char>(data, data + tsr_tensor_bytes(value));
  }
  return state;
}

// Trained parameters are f32; others are equal to the bit.
struct StateDifference {
  double largest = 0;    // relative to the largest number of its parameter
  double far_share = 0;  // of the numbers that differ by more than 1e-5 of that
};
inline StateDifference state_difference(const ParameterState& found, const ParameterState& wanted) {
  StateDifference all;
  size_t far = 0, count = 0;
  for (const auto& [name, bytes] : wanted) {
    const std::vector<char>& others = found.at(name);
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

inline void check_equal_arenas(const Trainer& trainer) {
  const nlohmann::json report =
      nlohmann::json::parse(text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); }));
  for (const nlohmann::json& device : report["devices"]) {
    CAPTURE(device["arena_bytes"].dump());
    CHECK(device["arena_bytes"]["predicted"] == device["arena_bytes"]["measured"]);
  }
}

struct TrainingResult {
  std::vector<double> losses;  // of the steps, then held out
  ParameterState state;
};

// kFormSteps steps from the first, or where it was resumed the last alone; `folder`: where it is saved before the last.
inline TrainingResult train_steps(const Trainer& trainer, const Model& model, int first, const std::string& folder) {
  TrainingResult result;
  for (int step = first; step <= kFormSteps; ++step) {
    if (step == kFormSteps && !folder.empty()) ok(tsr_trainer_save(trainer.get(), folder.c_str()));
    result.losses.push_back(one_step(trainer));
  }
  result.losses.push_back(evaluated(trainer));
  result.state = state_of(trainer, model);
  return result;
}

struct WorstDeviation {
  double loss = 0, value = 0, far_share = 0;
};

// How near results are to those of one device.
struct FormTolerance {
  bool is_sgd = true;    // steps in proportion to gradients: all values are compared, else their far share
  double value = 1e-5;  // relative to the largest number of the parameter
};

inline void check_near_results(const FormTolerance& tolerance, const TrainingResult& found, const TrainingResult& wanted,
                               WorstDeviation& worst) {
  const size_t left = wanted.losses.size() - found.losses.size();
  for (size_t i = 0; i < found.losses.size(); ++i) {
    CHECK(found.losses[i] == doctest::Approx(wanted.losses[left + i]).epsilon(1e-5));
    worst.loss = std::max(worst.loss, std::fabs(found.losses[i] / wanted.losses[left + i] - 1));
  }
  const StateDifference deviation = state_difference(found.state, wanted.state);
  CAPTURE(deviation.largest);
  CAPTURE(deviation.far_share);
  if (tolerance.is_sgd) {
    CHECK(deviation.largest < tolerance.value);
    worst.value = std::max(worst.value, deviation.largest);
  } else {
    CHECK(deviation.far_share < 0.01);
    worst.far_share = std::max(worst.far_share, deviation.far_share);
  }
}

inline void check_same_results(const TrainingResult& found, const TrainingResult& wanted) {
  const size_t left = wanted.losses.size() - found.losses.size();
  for (size_t i = 0; i < found.losses.size(); ++i) CHECK(found.losses[i] == wanted.losses[left + i]);
  for (const auto& [name, bytes] : wanted.state) {
    CAPTURE(name);
    CHECK(found.state.at(name) == bytes);
  }
}

// A training with equal results under many forms.
struct FormedTraining {
  const Model& model;
  std::function<Trainer(const ParallelForm&, Error* refusal)> trainer;  // null, with the error, where it is refused
  std::function<bool(const ParallelForm&)> is_refused;                  // whether no division of this model is expected
  FormTolerance tolerance = {};
};

// Trains under the forms: near to one device, with arenas as predicted, resumed bit for bit on the same form and near to it on the
// one before and on one device. `folder`: of a name. Returns the forms that are refused, in words.
inline std::vector<std::string> check_forms(const FormedTraining& it, std::span<const ParallelForm> forms,
                                            const std::function<std::string(const char*)>& folder_of, WorstDeviation& worst) {
  Error refusal;
  const auto made = [&](const ParallelForm& form) {
    Trainer trainer = it.trainer(form, &refusal);
    INFO(refusal.message);
    REQUIRE(trainer != nullptr);
    return trainer;
  };
  const auto resumed = [&](const Trainer& trainer, const std::string& folder) {
    ok(tsr_trainer_resume(trainer.get(), folder.c_str()));
    return train_steps(trainer, it.model, kFormSteps, "");
  };
  const std::string alone_folder = folder_of("alone");
  const TrainingResult alone = train_steps(made(kOneDevice), it.model, 1, alone_folder);
  const Trainer alone_again = made(kOneDevice);
  check_same_results(resumed(alone_again, alone_folder), alone);
  std::string other_folder = alone_folder;  // of the form before
  std::vector<std::string> refused;
  int number = 0;
  for (const ParallelForm& form : forms) {
    CAPTURE(std::string(form.parallel));
    const std::string folder = folder_of(++number % 2 == 0 ? "even" : "odd");
    const Trainer trainer = it.trainer(form, &refusal);
    if (trainer == nullptr) {
      refused.push_back(std::string(form.parallel) + ": " + refusal.message);
      CHECK_MESSAGE(it.is_refused(form), refusal.message);
      CHECK_MESSAGE(refusal.message.find("does not fit") != std::string::npos, refusal.message);
      continue;
    }
    CHECK(!it.is_refused(form));
    const TrainingResult whole = train_steps(trainer, it.model, 1, folder);
    check_near_results(it.tolerance, whole, alone, worst);
    check_equal_arenas(trainer);
    const Trainer again = made(form);
    check_same_results(resumed(again, folder), whole);
    check_near_results(it.tolerance, resumed(again, other_folder), alone, worst);
    check_near_results(it.tolerance, resumed(alone_again, folder), alone, worst);
    other_folder = folder;
  }
  return refused;
}

}  // namespace capi_test
