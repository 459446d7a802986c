// tsr_run: a training from its first step to its result.
#include <algorithm>
#include <atomic>
#include <thread>

#include "training_runs.h"

using namespace capi_test;

TEST_CASE("a_run_makes_the_steps_of_a_loop_and_tells_what_happens_in_order") {
  const Scratch scratch;
  const RunTraining training;
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
  const std::vector<RunEvent> events = all_events(run);
  CHECK(losses_of(events) == losses);
  CHECK(steps_of(events, TSR_RUN_STEP) == "1 2 3 4 5 6 7");
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "3 6 7");
  CHECK(steps_of(events, TSR_RUN_SAMPLE) == "3 3 3 6 6 6 7 7 7");
  CHECK(steps_of(events, TSR_RUN_CHECKPOINT) == "2 4 6 7");
  CHECK(steps_of(events, TSR_RUN_NOTE) + steps_of(events, TSR_RUN_WARNING) == "");
  CHECK(events.back().details == RunJson{{"outcome", "finished"}});
  for (size_t i = 0; i < events.size(); ++i) {
    const RunEvent& event = events[i];
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

  const RunJson report = report_of(run);
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
  for (std::string line; std::getline(lines, line);) kinds += RunJson::parse(line)["kind"].get<std::string>()[0];
  CHECK(kinds == "hsssesssscssessscsessscce");
}

TEST_CASE("the_best_step_is_kept_and_written_and_patience_ends_a_run") {
  const Scratch scratch;
  RunTraining training;
  training.lr = 0.3;  // soon harms
  Run run = run_of(training.trainer(40), {{"out", scratch / "out.tsr"},
                                          {"eval_every", 2},
                                                {"patience", 3},
                                                {"checkpoint_every", 3},
                                                {"keep", 2}});
  const std::vector<RunEvent> events = all_events(run);
  const RunJson report = report_of(run);
  const int64_t best = report["best_step"], last = report["step"];
  CHECK(last == best + 6);
  CHECK(last < 40);
  std::vector<double> evaluations;
  for (const RunEvent& event : events)
    if (event.kind == TSR_RUN_EVALUATION) evaluations.push_back(event.loss);
  const double least = *std::ranges::min_element(evaluations);
  CHECK(report["best_loss"] == least);
  CHECK(report["eval_loss"] == least);
  CHECK(report["out_step"] == best);
  CHECK(report["stopped_early"] == true);
  CHECK(events.back().details["outcome"] == "stopped early at step " + std::to_string(last));
  REQUIRE(steps_of(events, TSR_RUN_NOTE) == std::to_string(last));
  const auto note = std::ranges::find(events, TSR_RUN_NOTE, &RunEvent::kind);
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
  const std::vector<RunEvent> none = all_events(again);
  CHECK(steps_of(none, TSR_RUN_STEP) == "");
  CHECK(none[0].details["message"].get<std::string>().find("nothing is left to do: the held-out loss") == 0);
  CHECK(evaluation_now(again) == evaluations.back());
  ok(tsr_run_load_best(again.get()));
  CHECK(evaluation_now(again) == least);
}

TEST_CASE("min_delta_is_the_least_improvement_that_patience_counts") {
  const Scratch scratch;
  const RunTraining training;
  const Run run = run_of(training.trainer(), {{"checkpoint", scratch / "c"}, {"eval_every", 2}, {"patience", 2}, {"min_delta", 50.0}});
  CHECK(steps_of(all_events(run), TSR_RUN_EVALUATION) == "2 4 6");
  CHECK(report_of(run)["best_step"] == 6);
}

TEST_CASE("a_run_that_another_thread_stops_goes_on_to_the_same_bits") {
  const Scratch scratch;
  const RunTraining training;
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
    const std::vector<RunEvent> events = all_events(run);
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
  CHECK(RunJson(losses) == report_of(whole)["losses"]);
  CHECK(report_of(run)["best_step"] == report_of(whole)["best_step"]);
  CHECK(bytes_of(scratch / "out.tsr") == bytes_of(scratch / "whole.tsr"));
}

TEST_CASE("a_folder_has_one_run_at_a_time_and_keeps_what_an_earlier_one_wrote") {
  const Scratch scratch;
  const RunTraining training;
  const Trainer first = training.trainer(2), second = training.trainer(2);
  const std::string out = scratch / "out.tsr", other = scratch / "other.tsr";
  {
    const Run run = run_of(first, {{"out", out}});
    const Error error = refused(second, {{"out", other}, {"checkpoint", out + ".checkpoint"}});
    CHECK(error.code == TSR_BUSY);
    CHECK(says(error, "another training writes its checkpoints there"));
    ok(tsr_run_finish(run.get()));
  }
  const Error error = refused(second, {{"out", out}});
  CHECK(error.code == TSR_EXISTS);
  CHECK(says(error, "of step 2"));
  CHECK(says(error, "option 'overwrite'"));
  CHECK(take(tsr_run_check(options({{"out", out}}).get(), nullptr, nullptr)).code == TSR_EXISTS);
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

TEST_CASE("an_evaluation_by_the_owner_counts_once_for_its_step") {
  const Scratch scratch;
  const RunTraining training;
  const Trainer trainer = training.trainer();
  const Run run = run_of(
      trainer, {{"out", scratch / "out.tsr"}, {"eval_every", 12}, {"keep_best", 1}, {"checkpoint_every", 1}});
  const double first = evaluation_now(run);
  CHECK(evaluation_now(run) == first);
  CHECK(next_of(run).details["is_best"] == false);  // no step is the best yet
  const int64_t saved = events_until(run, TSR_RUN_CHECKPOINT).back().step;
  const double second = evaluation_now(run);  // the checkpoint of this step has been begun
  CHECK(second == evaluation_now(run));
  const RunEvent told = next_of(run);
  CHECK(told.kind == TSR_RUN_EVALUATION);
  CHECK(told.step == saved + 1);
  CHECK(told.details["is_best"] == true);
  ok(tsr_trainer_set_lr(trainer.get(), 10));  // it soon harms
  ok(tsr_run_save(run.get()));
  CHECK(step_of_checkpoint(scratch / "out.tsr.checkpoint") == told.step);
  CHECK(step_of_checkpoint(scratch / "out.tsr.checkpoint.best") == told.step);
  const std::vector<RunEvent> events = all_events(run);
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "12");
  const RunJson report = report_of(run);
  CHECK(report["best_step"] == told.step);
  CHECK(report["best_loss"] == second);
  CHECK(report["out_step"] == told.step);
  CHECK(report["evaluations"].size() == 3);
  CHECK(evaluation_now(run) == second);
}
