#include "tests/mixtures/run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace capi_test;

namespace mixtures {

namespace {

struct Failure {
  Error error;
  std::string during;
};

void must(tsr_status* status, const char* during) {
  const Error error = take(status);
  if (error.code != TSR_OK) throw Failure{error, during};
}

// Values as f32, whatever their stored type.
std::vector<float> numbers(const tsr_tensor* tensor) {
  if (tsr_tensor_dtype(tensor) != TSR_BF16) return floats(tensor);
  const auto* codes = static_cast<const uint16_t*>(tsr_tensor_data(tensor));
  std::vector<float> values(tsr_tensor_bytes(tensor) / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(codes[i]) << 16;
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return values;
}

// Parameters and optimizer state that the job was found to have.
Values read_all(const Trainer& trainer, const Job& job) {
  Values all;
  for (const std::string& name : job.stored) {
    tsr_tensor* found = nullptr;
    must(tsr_trainer_read(trainer.get(), name.c_str(), &found), "read");
    all[name] = numbers(Tensor(found).get());
  }
  return all;
}

Values read_gradients(const Trainer& trainer, const Job& job) {
  Values all;
  for (auto& [name, values] : read_all(trainer, job))
    if (name.ends_with(".m") || name.ends_with(".momentum")) all[name] = std::move(values);
  return all;
}

void find_stored(const Trainer& trainer, Job& job) {
  job.stored = job.parameters;
  for (const std::string& name : job.parameters)
    for (const char* state : {".m", ".v", ".momentum"}) {
      tsr_tensor* found = nullptr;
      const Error error = take(tsr_trainer_read(trainer.get(), (name + state).c_str(), &found));
      if (error.code == TSR_NOT_FOUND) continue;  // frozen, or another optimizer's
      if (error.code != TSR_OK) throw Failure{error, "read"};
      tsr_tensor_free(found);
      job.stored.push_back(name + state);
    }
}

Options settings_of(const Job& job, const Layout& layout) {
  Options settings =
      options({{"devices", "cpu:" + std::to_string(layout.devices)}, {"parallel", layout.words}});
  for (const auto& [key, value] : job.settings) {
    if (const auto* integer = std::get_if<int64_t>(&value))
      ok(tsr_options_set_i64(settings.get(), key, *integer));
    if (const auto* real = std::get_if<double>(&value)) ok(tsr_options_set_f64(settings.get(), key, *real));
    if (const auto* words = std::get_if<std::string>(&value))
      ok(tsr_options_set_str(settings.get(), key, words->c_str()));
  }
  return settings;
}

Trainer trainer_of(tsr_runtime* runtime, const Job& job, const Options& settings) {
  tsr_trainer* made = nullptr;
  must(tsr_trainer_new(runtime, job.model.get(), job.data.get(), settings.get(), &made), "new");
  return Trainer(made);
}

double step(const Trainer& trainer) {
  tsr_step info{};
  info.struct_size = sizeof info;
  must(tsr_trainer_step(trainer.get(), &info), "step");
  return info.loss;
}

double evaluate(const Trainer& trainer) {
  double loss = 0;
  must(tsr_trainer_evaluate(trainer.get(), &loss), "evaluate");
  return loss;
}

void first_stretch(const Trainer& trainer, const Job& job, Course& course) {
  course.losses.push_back(step(trainer));
  course.gradients = read_gradients(trainer, job);
  for (int i = 1; i < kStepsAStretch; ++i) course.losses.push_back(step(trainer));
  course.middle = read_all(trainer, job);
  course.middle_loss = evaluate(trainer);
}

void second_stretch(const Trainer& trainer, const Job& job, Course& course) {
  for (int i = 0; i < kStepsAStretch; ++i) course.losses.push_back(step(trainer));
  course.end = read_all(trainer, job);
  course.end_loss = evaluate(trainer);
}

const Course& on_one_device(tsr_runtime* runtime, Job& job) {
  if (job.one_device) return *job.one_device;
  Options settings = settings_of(job, {"single", 1});
  ok(tsr_options_set_str(settings.get(), "fused_loss", "off"));
  const Trainer trainer = trainer_of(runtime, job, settings);
  find_stored(trainer, job);
  auto course = std::make_unique<Course>();
  first_stretch(trainer, job, *course);
  second_stretch(trainer, job, *course);
  job.one_device = std::move(course);
  return *job.one_device;
}

class Comparison {
 public:
  Comparison(double allowed, Verdict& verdict) : allowed_(allowed), verdict_(verdict) {}

  void number(const char* what, double found, double wanted) {
    note(what, std::abs(found - wanted) / std::max(1.0, std::abs(wanted)));
  }

  // Relative to the largest of a tensor; for tensors near zero, to that of the others.
  void values(const char* what, const Values& found, const Values& wanted) {
    if (found.size() != wanted.size()) return wrong(std::string(what) + ": other tensors");
    double all = 0;
    for (const auto& [name, values] : wanted)
      for (const float value : values) all = std::max(all, static_cast<double>(std::abs(value)));
    for (const auto& [name, values] : wanted) {
      const auto at = found.find(name);
      if (at == found.end() || at->second.size() != values.size()) return wrong(name + " is missing");
      double largest = 0, off = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, static_cast<double>(std::abs(values[i])));
        const double away = std::abs(static_cast<double>(at->second[i]) - values[i]);
        if (!(away <= off)) off = away;  // also where it is no number
      }
      note((std::string(what) + " " + name).c_str(), off / std::max(largest, 1e-2 * all + 1e-12));
    }
  }

  void same_bits(const Values& found, const Values& wanted) {
    if (found != wanted) wrong("values differ after resuming");
  }

 private:
  void note(const std::string& what, double off) {
    if (off / allowed_ <= verdict_.deviation) return;
    verdict_.deviation = off / allowed_;
    if (!(off > allowed_) && off == off) return;
    char text[64];
    std::snprintf(text, sizeof text, "off by %.3g, allowed %.3g", off, allowed_);
    if (verdict_.what.empty()) wrong(what + " " + text);
  }
  void wrong(std::string what) {
    verdict_.kind = Verdict::kWrong;
    if (verdict_.what.empty()) verdict_.what = std::move(what);
  }

  double allowed_;
  Verdict& verdict_;
};

// Bytes that the fullest device of the plan holds.
int64_t planned_bytes(tsr_runtime* runtime, const Job& job, const Options& settings) {
  tsr_plan* made = nullptr;
  tsr_options* with_data = settings.get();
  must(tsr_options_set_i64(with_data, "seq", job.seq), "options");
  must(tsr_plan_new(runtime, job.model.get(), with_data, &made), "plan");
  const Plan plan(made);
  const std::string info = text([&](tsr_text** out) { return tsr_plan_info(plan.get(), out); });
  int64_t most = 0;
  constexpr std::string_view kKey = "\"arena_bytes\"";
  for (size_t at = info.find(kKey); at != std::string::npos; at = info.find(kKey, at + 1)) {
    const size_t digit = info.find_first_of("0123456789", at);
    if (digit != std::string::npos) most = std::max<int64_t>(most, std::stoll(info.substr(digit)));
  }
  return most;
}

void resume(tsr_runtime* runtime, Job& job, const Attempt& attempt, const Trainer& trainer,
            const Course& course, const Course& wanted, Comparison& compare, Verdict& verdict) {
  const Scratch scratch;
  const std::string folder = scratch / "checkpoint";
  must(tsr_trainer_save(trainer.get(), folder.c_str()), "save");
  for (const Layout& layout : attempt.others) {
    tsr_trainer* made = nullptr;
    const Error error = take(
        tsr_trainer_new(runtime, job.model.get(), job.data.get(), settings_of(job, layout).get(), &made));
    if (error.code != TSR_OK) continue;
    const Trainer other(made);
    verdict.resumed = layout.words + " on " + std::to_string(layout.devices);
    must(tsr_trainer_resume(other.get(), folder.c_str()), "resume");
    compare.same_bits(read_all(other, job), course.middle);
    Course rest;
    second_stretch(other, job, rest);
    for (int i = 0; i < kStepsAStretch; ++i)
      compare.number("loss after resuming", rest.losses[static_cast<size_t>(i)],
                     wanted.losses[static_cast<size_t>(kStepsAStretch + i)]);
    compare.values("after resuming", rest.end, wanted.end);
    compare.number("evaluation after resuming", rest.end_loss, wanted.end_loss);

    // Its result, as a model of its own, on one device.
    tsr_model* stored = nullptr;
    must(tsr_model_new(job.description.c_str(), nullptr, &stored), "model");
    Model result(stored);
    if (job.adapter_rank > 0) result = with_adapters(result, job);
    must(tsr_trainer_store(other.get(), result.get()), "store");
    Options alone = settings_of(job, {"", 1});
    ok(tsr_options_set_i64(alone.get(), "evaluate_only", 1));
    tsr_trainer* evaluator = nullptr;
    must(tsr_trainer_new(runtime, result.get(), job.data.get(), alone.get(), &evaluator), "evaluator");
    compare.number("evaluation on one device", evaluate(Trainer(evaluator)), wanted.end_loss);
    return;
  }
}

}  // namespace

double allowed(Rounding rounding) {
  switch (rounding) {
    case Rounding::kF32: return 1e-4;
    case Rounding::kTf32: return 1e-2;         // a number near a tie is rounded the other way: 2^-11 of it
    case Rounding::kFp8: return 0.25;          // the same: 2^-4, and momentum sums those of four steps
    case Rounding::kBf16Weights: return 0.03;  // the same: 2^-8, and again in each step
  }
  return 0;
}

Verdict run(tsr_runtime* runtime, Job& job, const Attempt& attempt) {
  Verdict verdict;
  Trainer trainer;

  try {
    Options settings = settings_of(job, attempt.layout);
    ok(tsr_options_set_str(settings.get(), "fused_loss", attempt.fused_loss.c_str()));
    if (attempt.limited) {
      const int64_t bytes = planned_bytes(runtime, job, settings);
      settings = settings_of(job, attempt.layout);
      ok(tsr_options_set_i64(settings.get(), "memory_limit", bytes * 4 / 5));
    }
    trainer = trainer_of(runtime, job, settings);
  } catch (const Failure& failure) {
    verdict.kind = Verdict::kRefused;
    verdict.what = std::string(tsr_code_name(failure.error.code)) + ": " + failure.error.message;
    return verdict;
  }
  try {
    const Course& wanted = on_one_device(runtime, job);
    Course course;
    first_stretch(trainer, job, course);
    Comparison compare(allowed(job.rounding), verdict);
    compare.number("first loss", course.losses[0], wanted.losses[0]);
    compare.values("gradient", course.gradients, wanted.gradients);
    for (size_t i = 1; i < course.losses.size(); ++i)
      compare.number("loss", course.losses[i], wanted.losses[i]);
    compare.values("after two steps", course.middle, wanted.middle);
    compare.number("evaluation", course.middle_loss, wanted.middle_loss);
    if (!attempt.others.empty()) resume(runtime, job, attempt, trainer, course, wanted, compare, verdict);
  } catch (const Failure& failure) {
    verdict.kind = Verdict::kWrong;
    verdict.what =
        failure.during + " failed: " + tsr_code_name(failure.error.code) + ": " + failure.error.message;
  }
  return verdict;
}

}  // namespace mixtures
