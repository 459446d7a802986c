// Training runs that several tests make: trainers that all train alike, and the events of their runs.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

namespace capi_test {

namespace fs = std::filesystem;
using RunJson = nlohmann::json;
using Run = Handle<tsr_run, tsr_run_free>;
using Settings = std::initializer_list<Setting>;

struct RunEvent {
  int32_t kind;
  int64_t step;
  double loss;
  RunJson details;
};

// A model, its data, and trainers that all train alike: 12 steps unless `steps` says otherwise.
struct RunTraining {
  Runtime runtime = capi_test::runtime();
  Model model = described_with_bytes("llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=32", 3);
  Dataset data = bytes_dataset();
  double lr = 1e-2;

  Trainer trainer(int64_t steps = 12) const {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), model.get(), data.get(),
                       options({{"devices", std::string("cpu:1")},
                                {"batch", 4},
                                {"steps", steps},
                                {"lr", lr},
                                {"warmup", 0},
                                {"eval_batches", 2}})
                           .get(),
                       &made));
    return Trainer(made);
  }
};

inline Run run_of(const Trainer& trainer, Settings settings) {
  tsr_run* made = nullptr;
  ok(tsr_run_new(trainer.get(), options(settings).get(), &made));
  return Run(made);
}

inline Error refused(const Trainer& trainer, Settings settings) {
  tsr_run* made = nullptr;
  const Error error = take(tsr_run_new(trainer.get(), options(settings).get(), &made));
  CHECK(made == nullptr);
  CHECK(error.code != TSR_OK);
  return error;
}

// The next event, or the error in its place.
inline std::optional<RunEvent> next_of(const Run& run, Error& error) {
  tsr_run_event event{};
  event.struct_size = sizeof event;
  error = take(tsr_run_next(run.get(), &event));
  if (error.code != TSR_OK) return {};
  return RunEvent{event.kind, event.step, event.loss, RunJson::parse(std::string(event.details, event.details_size))};
}

inline RunEvent next_of(const Run& run) {
  Error error;
  std::optional<RunEvent> event = next_of(run, error);
  INFO(error.message);
  REQUIRE(event.has_value());
  return *event;
}

// Goes on until an event of this kind, which is the last that it returns.
inline std::vector<RunEvent> events_until(const Run& run, int32_t kind) {
  std::vector<RunEvent> events;
  do events.push_back(next_of(run));
  while (events.back().kind != kind && events.back().kind != TSR_RUN_END);
  return events;
}
inline std::vector<RunEvent> all_events(const Run& run) { return events_until(run, TSR_RUN_END); }

// "1 2 3": the steps of the events of a kind.
inline std::string steps_of(const std::vector<RunEvent>& events, int32_t kind) {
  std::string steps;
  for (const RunEvent& event : events)
    if (event.kind == kind) steps += (steps.empty() ? "" : " ") + std::to_string(event.step);
  return steps;
}

inline std::vector<double> losses_of(const std::vector<RunEvent>& events) {
  std::vector<double> losses;
  for (const RunEvent& event : events)
    if (event.kind == TSR_RUN_STEP) losses.push_back(event.loss);
  return losses;
}

inline RunJson report_of(const Run& run) {
  return RunJson::parse(text([&](tsr_text** made) { return tsr_run_report(run.get(), made); }));
}

inline double evaluation_now(const Run& run) {
  return RunJson::parse(text([&](tsr_text** made) { return tsr_run_evaluate(run.get(), made); }))["loss"];
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// The model's file with the values of a checkpoint.
inline std::string file_of_checkpoint(const RunTraining& training, const std::string& checkpoint, const std::string& path) {
  const Trainer trainer = training.trainer();
  ok(tsr_trainer_resume(trainer.get(), checkpoint.c_str()));
  ok(tsr_trainer_save_model(trainer.get(), training.model.get(), path.c_str(), nullptr));
  return bytes_of(path);
}

inline int64_t step_of_checkpoint(const std::string& folder) {
  return RunJson::parse(text([&](tsr_text** made) { return tsr_checkpoint_info(folder.c_str(), made); }))["step"];
}

inline std::set<std::string> names_in(const Scratch& scratch) {
  std::set<std::string> names;
  for (const fs::directory_entry& it : fs::directory_iterator(scratch.path)) names.insert(it.path().filename());
  return names;
}

inline bool says(const Error& error, const char* words) {
  INFO(error.message);
  return error.message.find(words) != std::string::npos;
}

}  // namespace capi_test
