// tsr_run: a training from its first step to its result.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "c_api.h"
#include "small_training.h"
#include "tests/file_size_limit.h"

using namespace capi_test;
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;
using Run = Handle<tsr_run, tsr_run_free>;
using Settings = std::initializer_list<Setting>;

struct Event {
  int32_t kind;
  int64_t step;
  double loss;
  Json details;
};

// A model, its data, and trainers that all train alike: 12 steps unless `steps` says otherwise.
struct Training {
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

Run run_of(const Trainer& trainer, Settings settings) {
  tsr_run* made = nullptr;
  ok(tsr_run_new(trainer.get(), options(settings).get(), &made));
  return Run(made);
}

Error refused(const Trainer& trainer, Settings settings) {
  tsr_run* made = nullptr;
  const Error error = take(tsr_run_new(trainer.get(), options(settings).get(), &made));
  CHECK(made == nullptr);
  CHECK(error.code != TSR_OK);
  return error;
}

// The next event, or the error in its place.
std::optional<Event> next_of(const Run& run, Error& error) {
  tsr_run_event event{};
  event.struct_size = sizeof event;
  error = take(tsr_run_next(run.get(), &event));
  if (error.code != TSR_OK) return {};
  return Event{event.kind, event.step, event.loss, Json::parse(std::string(event.details, event.details_size))};
}

Event next_of(const Run& run) {
  Error error;
  std::optional<Event> event = next_of(run, error);
  INFO(error.message);
  REQUIRE(event.has_value());
  return *event;
}

// Goes on until an event of this kind, which is the last that it returns.
std::vector<Event> events_until(const Run& run, int32_t kind) {
  std::vector<Event> events;
  do events.push_back(next_of(run));
  while (events.back().kind != kind && events.back().kind != TSR_RUN_END);
  return events;
}
std::vector<Event> all_events(const Run& run) { return events_until(run, TSR_RUN_END); }

// "1 2 3": the steps of the events of a kind.
std::string steps_of(const std::vector<Event>& events, int32_t kind) {
  std::string steps;
  for (const Event& event : events)
    if (event.kind == kind) steps += (steps.empty() ? "" : " ") + std::to_string(event.step);
  return steps;
}

std::vector<double> losses_of(const std::vector<Event>& events) {
  std::vector<double> losses;
  for (const Event& event : events)
    if (event.kind == TSR_RUN_STEP) losses.push_back(event.loss);
  return losses;
}

Json report_of(const Run& run) {
  return Json::parse(text([&](tsr_text** made) { return tsr_run_report(run.get(), made); }));
}

double evaluation_now(const Run& run) {
  return Json::parse(text([&](tsr_text** made) { return tsr_run_evaluate(run.get(), made); }))["loss"];
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// The model's file with the values of a checkpoint.
std::string file_of_checkpoint(const Training& training, const std::string& checkpoint, const std::string& path) {
  const Trainer trainer = training.trainer();
  ok(tsr_trainer_resume(trainer.get(), checkpoint.c_str()));
  ok(tsr_trainer_save_model(trainer.get(), training.model.get(), path.c_str(), nullptr));
  return bytes_of(path);
}

int64_t step_of_checkpoint(const std::string& folder) {
  return Json::parse(text([&](tsr_text** made) { return tsr_checkpoint_info(folder.c_str(), made); }))["step"];
}

std::set<std::string> names_in(const Scratch& scratch) {
  std::set<std::string> names;
  for (const fs::directory_entry& it : fs::directory_iterator(scratch.path)) names.insert(it.path().filename());
  return names;
}

bool says(const Error& error, const char* words) {
  INFO(error.message);
  return error.message.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a_run_makes_the_steps_of_a_loop_and_tells_what_happens_in_order") {
  const Scratch scratch;
  const Training training;
  ok(tsr_model_set_metadata(training.model.get(), "chat_template", "{{ messages[-1].content }}"));
  std::vector<double> losses;
  const Trainer plain = training.trainer(7);
  for (int i = 0; i < 7; ++i) losses.push_back(one_step(plain));
  const double loss = evaluated(plain);
  ok(tsr_trainer_save_model(plain.get(), training.model.get(), (scratch / "plain.tsr").c_str(), nullptr));

  Trainer trainer = training.trainer(7);
  const Run run = run_of(trainer, {{"out", scratch / "out.tsr"},
                                   {"eval_every", 3},
                                   {"checkpoint_every", 2},
                                   {"samples", std::string(R"(["the ", "[x"])")},
                                   {"sample_messages", std::string("Hi")},
                                   {"sample_tokens", 3},
                                   {"metrics", scratch / "run.jsonl"}});
  trainer = nullptr;  // the run keeps it
  CHECK(report_of(run)["outcome"].is_null());
  const std::vector<Event> events = all_events(run);
  CHECK(losses_of(events) == losses);
  CHECK(steps_of(events, TSR_RUN_STEP) == "1 2 3 4 5 6 7");
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "3 6 7");
  CHECK(steps_of(events, TSR_RUN_SAMPLE) == "3 3 3 6 6 6 7 7 7");
  CHECK(steps_of(events, TSR_RUN_CHECKPOINT) == "2 4 6 7");
  CHECK(steps_of(events, TSR_RUN_NOTE) + steps_of(events, TSR_RUN_WARNING) == "");
  CHECK(events.back().details == Json{{"outcome", "finished"}});
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == TSR_RUN_STEP) {
      CHECK(event.details["loss"] == event.loss);
      CHECK(event.details["steps"] == 7);
    }
    if (event.kind != TSR_RUN_EVALUATION) continue;
    CHECK(events[i - 1].kind == TSR_RUN_STEP);
    CHECK(events[i + 1].details["prompt"] == "the ");
    CHECK(events[i + 2].details["prompt"] == "[x");
    CHECK(events[i + 3].details["prompt"] == "Hi");
    CHECK(event.details["loss"] == event.loss);
    if (event.step == 7) CHECK(event.loss == loss);
  }
  CHECK(next_of(run).kind == TSR_RUN_END);
  ok(tsr_run_finish(run.get()));
  CHECK(bytes_of(scratch / "out.tsr") == bytes_of(scratch / "plain.tsr"));
  CHECK(file_of_checkpoint(training, scratch / "out.tsr.checkpoint", scratch / "resumed.tsr") ==
        bytes_of(scratch / "plain.tsr"));

  const Json report = report_of(run);
  CHECK(report["losses"] == losses);
  CHECK(report["eval_loss"] == loss);
  CHECK(report["evaluations"].size() == 3);
  CHECK(report["outcome"] == "finished");
  CHECK(report["out"] == scratch / "out.tsr");
  CHECK(report["out_kind"] == "model");
  CHECK(report["out_step"] == 7);
  CHECK(report["saved_step"] == 7);
  CHECK(report["checkpoint"] == scratch / "out.tsr.checkpoint");
  CHECK(report["best_step"].is_null());
  std::string kinds;
  std::ifstream lines(scratch / "run.jsonl");
  for (std::string line; std::getline(lines, line);) kinds += Json::parse(line)["kind"].get<std::string>()[0];
  CHECK(kinds == "hsssesssscssessscsessscce");
}

TEST_CASE("the_best_step_is_kept_and_written_and_patience_ends_a_run") {
  const Scratch scratch;
  Training training;
  training.lr = 0.3;  // soon harms
  Run run = run_of(training.trainer(40), {{"out", scratch / "out.tsr"},
                                          {"eval_every", 2},
                                                {"patience", 3},
                                                {"checkpoint_every", 3},
                                                {"keep", 2}});
  const std::vector<Event> events = all_events(run);
  const Json report = report_of(run);
  const int64_t best = report["best_step"], last = report["step"];
  CHECK(last == best + 6);
  CHECK(last < 40);
  std::vector<double> evaluations;
  for (const Event& event : events)
    if (event.kind == TSR_RUN_EVALUATION) evaluations.push_back(event.loss);
  const double least = *std::ranges::min_element(evaluations);
  CHECK(report["best_loss"] == least);
  CHECK(report["eval_loss"] == least);
  CHECK(report["out_step"] == best);
  CHECK(report["stopped_early"] == true);
  CHECK(events.back().details["outcome"] == "stopped early at step " + std::to_string(last));
  REQUIRE(steps_of(events, TSR_RUN_NOTE) == std::to_string(last));
  const auto note = std::ranges::find(events, TSR_RUN_NOTE, &Event::kind);
  CHECK(note->details["message"].get<std::string>().find("did not improve in 3 evaluations (patience 3)") !=
        std::string::npos);
  const std::string checkpoint = scratch / "out.tsr.checkpoint";
  CHECK(step_of_checkpoint(checkpoint + ".best") == best);
  CHECK(file_of_checkpoint(training, checkpoint + ".best", scratch / "best.tsr") == bytes_of(scratch / "out.tsr"));
  int kept = 0;
  for (const std::string& name : names_in(scratch)) kept += name.starts_with("out.tsr.checkpoint.step-") ? 1 : 0;
  CHECK(kept == 2);
  CHECK(step_of_checkpoint(checkpoint) == last);
  CHECK(step_of_checkpoint(checkpoint + ".step-" + std::to_string(last)) == last);

  // A run that has ended is not begun again by what resumes it.
  run = nullptr;
  const Run again = run_of(training.trainer(40), {{"checkpoint", checkpoint},
                                                  {"resume", scratch / "out.tsr"},
                                                  {"eval_every", 2},
                                                  {"patience", 3},
                                                  {"keep", 2}});
  const std::vector<Event> none = all_events(again);
  CHECK(steps_of(none, TSR_RUN_STEP) == "");
  CHECK(none[0].details["message"].get<std::string>().find("nothing is left to do: the held-out loss") == 0);
  CHECK(evaluation_now(again) == evaluations.back());
  ok(tsr_run_load_best(again.get()));
  CHECK(evaluation_now(again) == least);
}

TEST_CASE("min_delta_is_the_least_improvement_that_patience_counts") {
  const Scratch scratch;
  const Training training;
  const Run run = run_of(training.trainer(), {{"checkpoint", scratch / "c"}, {"eval_every", 2}, {"patience", 2}, {"min_delta", 50.0}});
  CHECK(steps_of(all_events(run), TSR_RUN_EVALUATION) == "2 4 6");
  CHECK(report_of(run)["best_step"] == 6);
}

TEST_CASE("a_run_that_another_thread_stops_goes_on_to_the_same_bits") {
  const Scratch scratch;
  const Training training;
  const Settings whole_options = {
      {"out", scratch / "whole.tsr"}, {"eval_every", 4}, {"keep_best", 1}, {"checkpoint_every", 5}, {"keep", 2}};
  const Run whole = run_of(training.trainer(20), whole_options);
  ok(tsr_run_finish(whole.get()));

  std::vector<double> losses;
  std::string resume;
  for (const int64_t at : {0, 7, 12}) {
    const Trainer trainer = training.trainer(20);
    const Run run = run_of(trainer, {{"out", scratch / "out.tsr"},
                                     {"eval_every", 4},
                                     {"keep_best", 1},
                                     {"checkpoint_every", 5},
                                     {"keep", 2},
                                     {"resume", resume}});
    for (int64_t step = static_cast<int64_t>(losses.size()); step < at; ++step)
      losses.push_back(events_until(run, TSR_RUN_STEP).back().loss);
    std::atomic<bool> is_stopping = false;
    std::thread other([&] {
      is_stopping = true;
      tsr_run_stop(run.get());
    });
    while (!is_stopping) std::this_thread::yield();
    const std::vector<Event> events = all_events(run);
    other.join();
    for (const double loss : losses_of(events)) losses.push_back(loss);
    CHECK(events.back().details["outcome"] == "stopped at step " + std::to_string(losses.size()));
    CHECK(step_of_checkpoint(scratch / "out.tsr.checkpoint") == static_cast<int64_t>(losses.size()));
    CHECK_FALSE(fs::exists(scratch / "out.tsr"));
    CHECK(report_of(run)["out_step"].is_null());
    resume = scratch / "out.tsr";
  }
  const Run run = run_of(training.trainer(20), {{"out", scratch / "out.tsr"},
                                                {"eval_every", 4},
                                                {"keep_best", 1},
                                                {"checkpoint_every", 5},
                                                {"keep", 2},
                                                {"resume", resume}});
  for (const double loss : losses_of(all_events(run))) losses.push_back(loss);
  CHECK(Json(losses) == report_of(whole)["losses"]);
  CHECK(report_of(run)["best_step"] == report_of(whole)["best_step"]);
  CHECK(bytes_of(scratch / "out.tsr") == bytes_of(scratch / "whole.tsr"));
}

TEST_CASE("a_folder_has_one_run_at_a_time_and_keeps_what_an_earlier_one_wrote") {
  const Scratch scratch;
  const Training training;
  const Trainer first = training.trainer(2), second = training.trainer(2);
  const std::string out = scratch / "out.tsr", other = scratch / "other.tsr";
  {
    const Run run = run_of(first, {{"out", out}});
    const Error error = refused(second, {{"out", other}, {"checkpoint", out + ".checkpoint"}});
    CHECK(error.code == TSR_FAILED_PRECONDITION);
    CHECK(says(error, "another training writes its checkpoints there"));
    ok(tsr_run_finish(run.get()));
  }
  const Error error = refused(second, {{"out", out}});
  CHECK(error.code == TSR_FAILED_PRECONDITION);
  CHECK(says(error, "of step 2"));
  CHECK(says(error, "option 'overwrite'"));
  CHECK(take(tsr_run_check(options({{"out", out}}).get(), nullptr, nullptr)).code == TSR_FAILED_PRECONDITION);
  const std::string before = bytes_of(out);
  ok(tsr_run_finish(run_of(second, {{"out", out}, {"overwrite", 1}}).get()));
  CHECK(bytes_of(out) == before);
  CHECK_FALSE(fs::exists(out + ".checkpoint.lock"));

  const auto folder = [](const std::string& name) {
    return short_text([&](char* buffer, size_t capacity, size_t* size) {
      return tsr_run_resumed_folder(name.c_str(), buffer, capacity, size);
    });
  };
  CHECK(folder(out) == out + ".checkpoint");
  CHECK(folder(out + ".checkpoint/") == out + ".checkpoint");
  // A save that was cut between two renames.
  fs::rename(out + ".checkpoint", out + ".checkpoint.saving");
  fs::create_directory(out + ".checkpoint.saving/replaced");
  CHECK(folder(out) == out + ".checkpoint");
  CHECK(says(refused(second, {{"out", out}}), "option 'resume'"));
  const Run resumed = run_of(training.trainer(2), {{"out", out}, {"resume", out}});
  CHECK(report_of(resumed)["step"] == 2);
  size_t size = 0;
  CHECK(take(tsr_run_resumed_folder(other.c_str(), nullptr, 0, &size)).code == TSR_NOT_FOUND);
}

TEST_CASE("runs_refuse_options_that_are_wrong_or_contradict_each_other") {
  const Scratch scratch;
  Training training;
  const Trainer trainer = training.trainer();
  const std::string out = scratch / "out.tsr";
  const auto is_refused = [&](Settings settings, const char* words) {
    INFO(std::string(words));
    const Error error = refused(trainer, settings);
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK(says(error, words));
    const Error checked =
        take(tsr_run_check(options(settings).get(), training.model.get(), training.data.get()));
    CHECK(checked.message == error.message);
  };
  is_refused({{"outt", out}}, "'outt'");
  is_refused({{"out", std::string("-")}}, "option 'out' is -");
  is_refused({{"keep", 0}, {"out", out}}, "option 'keep' is 0, wanted at least 1");
  is_refused({{"keep", 2}}, "option 'keep' is of a checkpoint, and none is written");
  is_refused({{"keep", 2}, {"out", out}, {"checkpoint_every", 0}}, "option 'keep' is of a checkpoint");
  is_refused({{"checkpoint_every", -1}, {"out", out}}, "option 'checkpoint_every' is -1");
  is_refused({{"min_delta", 0.1}, {"eval_every", 1}, {"out", out}}, "option 'min_delta' belongs to option 'patience'");
  is_refused({{"min_delta", std::nan("")}, {"patience", 1}, {"eval_every", 1}, {"out", out}}, "option 'min_delta'");
  is_refused({{"patience", 1}, {"out", out}}, "option 'patience' needs option 'eval_every'");
  is_refused({{"keep_best", 1}, {"out", out}}, "option 'keep_best' needs option 'eval_every'");
  is_refused({{"keep_best", 1}, {"eval_every", 1}}, "keep a checkpoint, and none is written");
  is_refused({{"merge", 1}}, "option 'out' is missing");
  is_refused({{"merge", 1}, {"out", out}}, "this model has none");
  is_refused({{"samples", std::string("[1]")}}, "option 'samples' holds 1, wanted texts");
  is_refused({{"samples", std::string("[x")}}, "option 'samples'");
  is_refused({{"sample_tokens", 0}}, "option 'sample_tokens' is 0");
  is_refused({{"steps", -1}}, "option 'steps' is -1");
  CHECK(refused(trainer, {{"resume", scratch / "none"}}).code == TSR_NOT_FOUND);
  CHECK(refused(trainer, {{"out", scratch / "none/out.tsr"}}).code != TSR_OK);
  CHECK(names_in(scratch).empty());

  training.data = repeated_text("the cat sat ", 200, 32, 0.0);
  CHECK(says(refused(training.trainer(), {{"eval_every", 1}}), "needs held-out rows"));
}

TEST_CASE("runs_refuse_nulls_and_other_calls_than_their_state_has") {
  const Training training;
  const Trainer trainer = training.trainer(1);
  tsr_run* made = nullptr;
  tsr_text* report = nullptr;
  tsr_run_event event{};
  event.struct_size = sizeof event;
  const auto is_null = [](tsr_status* status) { CHECK(take(status).code == TSR_INVALID_ARGUMENT); };
  is_null(tsr_run_new(nullptr, nullptr, &made));
  is_null(tsr_run_new(trainer.get(), nullptr, nullptr));
  ok(tsr_run_check(nullptr, nullptr, nullptr));
  is_null(tsr_run_resumed_folder(nullptr, nullptr, 0, nullptr));
  is_null(tsr_run_next(nullptr, &event));
  is_null(tsr_run_finish(nullptr));
  is_null(tsr_run_evaluate(nullptr, &report));
  is_null(tsr_run_save(nullptr));
  is_null(tsr_run_load_best(nullptr));
  is_null(tsr_run_report(nullptr, &report));
  tsr_run_stop(nullptr);
  tsr_run_free(nullptr);
  const Run run = run_of(trainer, {});
  is_null(tsr_run_next(run.get(), nullptr));
  is_null(tsr_run_evaluate(run.get(), nullptr));
  is_null(tsr_run_report(run.get(), nullptr));
  event.struct_size = 4;
  is_null(tsr_run_next(run.get(), &event));
  const Event warning = next_of(run);
  CHECK(warning.kind == TSR_RUN_WARNING);
  CHECK(warning.details["message"].get<std::string>().find("nothing of this run is kept") == 0);
  CHECK(take(tsr_run_save(run.get())).code == TSR_FAILED_PRECONDITION);
  CHECK(take(tsr_run_load_best(run.get())).code == TSR_FAILED_PRECONDITION);
  const std::vector<Event> events = all_events(run);
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "1");  // held-out rows are evaluated at the end
  CHECK(take(tsr_run_load_best(run.get())).code == TSR_NOT_FOUND);
  CHECK(evaluation_now(run) == report_of(run)["eval_loss"]);
}

TEST_CASE("checkpoints_that_are_not_written_are_warnings_then_errors") {
  const Scratch scratch;
  const Training training;
  const std::string out = scratch / "out.tsr", checkpoint = out + ".checkpoint";
  const Run run = run_of(training.trainer(20), {{"out", out}, {"checkpoint_every", 2}});
  events_until(run, TSR_RUN_CHECKPOINT);
  std::vector<std::string> told;
  {
    const tessera::test::FileSizeLimit limit(100 << 10);
    while (told.size() < 4) {
      Error error;
      const std::optional<Event> event = next_of(run, error);
      if (!event) told.push_back("error: " + error.message);
      if (event && event->kind == TSR_RUN_WARNING) told.push_back(event->details["message"]);
      REQUIRE((!event || event->kind != TSR_RUN_END));
    }
  }
  CHECK(told[0].find("was not written: ") != std::string::npos);
  CHECK(told[0].find("the last good checkpoint is " + checkpoint + "; the training goes on, and the next one is tried") !=
        std::string::npos);
  CHECK(told[1].find("was not written: ") != std::string::npos);
  for (const size_t i : {2, 3}) {
    CHECK(told[i].find("error: ") == 0);
    CHECK(told[i].find("File too large") != std::string::npos);
    CHECK(told[i].find("the last good checkpoint is " + checkpoint + " (option 'resume')") != std::string::npos);
  }
  const std::vector<Event> rest = all_events(run);  // there is room again
  CHECK(rest.back().details["outcome"] == "finished");
  CHECK(step_of_checkpoint(checkpoint) == 20);
  CHECK(report_of(run)["losses"].size() == 20);
  CHECK(names_in(scratch) == std::set<std::string>{"out.tsr", "out.tsr.checkpoint", "out.tsr.checkpoint.lock"});
}

TEST_CASE("the_end_of_a_run_tries_each_part_and_gives_the_first_error") {
  const Scratch scratch;
  const Training training;
  const std::string out = scratch / "out.tsr";
  const Run run = run_of(training.trainer(2), {{"out", out}, {"checkpoint", scratch / "c"}, {"checkpoint_every", 2}});
  events_until(run, TSR_RUN_STEP);
  events_until(run, TSR_RUN_STEP);
  std::ofstream(scratch / "c") << "in the way\n";
  Error error;
  std::vector<Event> events;
  while (const std::optional<Event> event = next_of(run, error)) events.push_back(*event);
  CHECK(says(error, "/c: "));
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "2");
  CHECK(fs::exists(out));
  CHECK(next_of(run).details["outcome"] == "finished");
  CHECK(report_of(run)["out_step"] == 2);
}

TEST_CASE("an_evaluation_by_the_owner_counts_once_for_its_step") {
  const Scratch scratch;
  const Training training;
  const Trainer trainer = training.trainer();
  const Run run = run_of(
      trainer, {{"out", scratch / "out.tsr"}, {"eval_every", 12}, {"keep_best", 1}, {"checkpoint_every", 1}});
  const double first = evaluation_now(run);
  CHECK(evaluation_now(run) == first);
  CHECK(next_of(run).details["is_best"] == false);  // no step is the best yet
  const int64_t saved = events_until(run, TSR_RUN_CHECKPOINT).back().step;
  const double second = evaluation_now(run);  // the checkpoint of this step has been begun
  CHECK(second == evaluation_now(run));
  const Event told = next_of(run);
  CHECK(told.kind == TSR_RUN_EVALUATION);
  CHECK(told.step == saved + 1);
  CHECK(told.details["is_best"] == true);
  ok(tsr_trainer_set_lr(trainer.get(), 10));  // it soon harms
  ok(tsr_run_save(run.get()));
  CHECK(step_of_checkpoint(scratch / "out.tsr.checkpoint") == told.step);
  CHECK(step_of_checkpoint(scratch / "out.tsr.checkpoint.best") == told.step);
  const std::vector<Event> events = all_events(run);
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "12");
  const Json report = report_of(run);
  CHECK(report["best_step"] == told.step);
  CHECK(report["best_loss"] == second);
  CHECK(report["out_step"] == told.step);
  CHECK(report["evaluations"].size() == 3);
  CHECK(evaluation_now(run) == second);
}
