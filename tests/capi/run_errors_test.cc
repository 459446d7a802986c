// tsr_run: what is refused, and what fails on the way.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "tests/file_size_limit.h"
#include "training_runs.h"

using namespace capi_test;

TEST_CASE("runs_refuse_options_that_are_wrong_or_contradict_each_other") {
  const Scratch scratch;
  RunTraining training;
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
  is_refused({{"out", out}, {"report", out}}, "options 'out' and 'report' both are ");
  is_refused({{"out", out}, {"tensorboard", out + ".checkpoint/"}}, "options 'checkpoint' and 'tensorboard' both are ");
  CHECK(refused(trainer, {{"resume", scratch / "none"}}).code == TSR_NOT_FOUND);
  CHECK(refused(trainer, {{"out", scratch / "none/out.tsr"}}).code != TSR_OK);
  CHECK(names_in(scratch).empty());

  training.data = repeated_text("the cat sat ", 200, 32, 0.0);
  CHECK(says(refused(training.trainer(), {{"eval_every", 1}}), "needs held-out rows"));
}

TEST_CASE("runs_refuse_nulls_and_other_calls_than_their_state_has") {
  const RunTraining training;
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
  const RunEvent warning = next_of(run);
  CHECK(warning.kind == TSR_RUN_WARNING);
  CHECK(warning.details["message"].get<std::string>().find("nothing of this run is kept") == 0);
  CHECK(take(tsr_run_save(run.get())).code == TSR_FAILED_PRECONDITION);
  CHECK(take(tsr_run_load_best(run.get())).code == TSR_FAILED_PRECONDITION);
  const std::vector<RunEvent> events = all_events(run);
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "1");  // held-out rows are evaluated at the end
  CHECK(take(tsr_run_load_best(run.get())).code == TSR_NOT_FOUND);
  CHECK(evaluation_now(run) == report_of(run)["eval_loss"]);
}

TEST_CASE("checkpoints_that_are_not_written_are_warnings_then_errors") {
  const Scratch scratch;
  const RunTraining training;
  const std::string out = scratch / "out.tsr", checkpoint = out + ".checkpoint";
  const Run run = run_of(training.trainer(20), {{"out", out}, {"checkpoint_every", 2}});
  events_until(run, TSR_RUN_CHECKPOINT);
  std::vector<std::string> messages;
  {
    const tessera::test::FileSizeLimit limit(100 << 10);
    while (messages.size() < 4) {
      Error error;
      const std::optional<RunEvent> event = next_of(run, error);
      if (!event) messages.push_back("error: " + error.message);
      if (event && event->kind == TSR_RUN_WARNING) messages.push_back(event->details["message"]);
      REQUIRE((!event || event->kind != TSR_RUN_END));
    }
  }
  CHECK(messages[0].find("was not written: ") != std::string::npos);
  CHECK(messages[0].find("the last good checkpoint is " + checkpoint + "; the training goes on, and the next one is tried") !=
        std::string::npos);
  CHECK(messages[1].find("was not written: ") != std::string::npos);
  for (const size_t i : {2, 3}) {
    CHECK(messages[i].find("error: ") == 0);
    CHECK(messages[i].find("File too large") != std::string::npos);
    CHECK(messages[i].find("the last good checkpoint is " + checkpoint + " (option 'resume')") != std::string::npos);
  }
  const std::vector<RunEvent> rest = all_events(run);  // there is room again
  CHECK(rest.back().details["outcome"] == "finished");
  CHECK(step_of_checkpoint(checkpoint) == 20);
  CHECK(report_of(run)["losses"].size() == 20);
  CHECK(names_in(scratch) == std::set<std::string>{"out.tsr", "out.tsr.checkpoint", "out.tsr.checkpoint.lock"});
}

TEST_CASE("the_end_of_a_run_tries_each_part_and_gives_the_first_error") {
  const Scratch scratch;
  const RunTraining training;
  const std::string out = scratch / "out.tsr";
  const Run run = run_of(training.trainer(2), {{"out", out}, {"checkpoint", scratch / "c"}, {"checkpoint_every", 2}});
  events_until(run, TSR_RUN_STEP);
  events_until(run, TSR_RUN_STEP);
  std::ofstream(scratch / "c") << "in the way\n";
  Error error;
  std::vector<RunEvent> events;
  while (const std::optional<RunEvent> event = next_of(run, error)) events.push_back(*event);
  CHECK(says(error, "/c: "));
  CHECK(steps_of(events, TSR_RUN_EVALUATION) == "2");
  CHECK(fs::exists(out));
  CHECK(next_of(run).details["outcome"] == "finished");
  CHECK(report_of(run)["out_step"] == 2);
}

TEST_CASE("a_forked_child_refuses_its_parents_run_and_frees_nothing") {
  const Scratch scratch;
  const RunTraining training;
  const Run run = run_of(training.trainer(4), {{"out", scratch / "out.tsr"}, {"checkpoint_every", 1}});
  events_until(run, TSR_RUN_STEP);
  events_until(run, TSR_RUN_STEP);  // a thread writes the checkpoint of the first
  const pid_t child = fork();
  if (child == 0) {
    tsr_run_event event{};
    event.struct_size = sizeof event;
    tsr_text* evaluation = nullptr;
    bool is_refused = true;
    for (tsr_status* status : {tsr_run_next(run.get(), &event), tsr_run_finish(run.get()), tsr_run_save(run.get()),
                               tsr_run_evaluate(run.get(), &evaluation), tsr_run_load_best(run.get())})
      is_refused = is_refused && tsr_status_code(status) == TSR_FORKED;
    tsr_run_free(run.get());
    _exit(is_refused ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(all_events(run).back().details["outcome"] == "finished");
}
