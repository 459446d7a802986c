// A state machine: step, evaluation, samples, checkpoint; at the end the last checkpoint, evaluation, samples and the
// output. Each phase queues events.
#include "engine/training/training_run.h"

#include <cmath>
#include <utility>

#include "graph/base/text.h"
#include "serialize/checkpoint_links.h"

namespace tessera {

namespace {

constexpr int64_t kUsualCheckpoints = 10;  // checkpoints per run by default

bool holds_out(const Trainer& trainer) { return trainer.dataset() && trainer.dataset()->eval_samples() > 0; }

Status check_held_out(const RunSettings& settings, bool has_rows) {
  if (settings.eval_every == 0 || has_rows) return {};
  return Status(StatusCode::kInvalidArgument,
                "run: option 'eval_every' needs held-out rows: option 'eval_fraction' or 'eval_file' of the dataset");
}

// The notes of the checkpoint in `folder`.
Result<std::map<std::string, std::string>> checkpoint_notes(const std::string& folder) {
  TSR_ASSIGN_OR_RETURN(const std::string text, checkpoint_json(folder));
  TSR_ASSIGN_OR_RETURN(const Json info, parse_json(text, "checkpoint", text.size()));
  std::map<std::string, std::string> notes;
  for (const auto& [key, value] : info["notes"].items()) notes[key] = value;
  return notes;
}

Json rewards_object(const PreferenceMetrics& it) {
  return {{"chosen_reward", it.chosen_reward},
          {"rejected_reward", it.rejected_reward},
          {"reward_margin", it.margin},
          {"reward_accuracy", it.accuracy}};
}

}  // namespace

Status TrainingRun::check(const Options& options, const std::shared_ptr<SharedModel>& model,
                          const std::shared_ptr<const Dataset>& dataset) {
  TSR_ASSIGN_OR_RETURN(const RunSettings settings, read_run_settings(options));
  if (Runtime::is_launched_after_first()) return {};  // the first process has the files
  TSR_RETURN_IF_ERROR(RunOutput::check_path(settings));
  TSR_RETURN_IF_ERROR(RunCheckpoints::check(settings));
  if (dataset) TSR_RETURN_IF_ERROR(check_held_out(settings, dataset->eval_samples() > 0));
  if (!model) return {};
  TSR_ASSIGN_OR_RETURN(const RunOutput output, RunOutput::create(settings, model));
  return output.check_files(settings);
}

Result<std::unique_ptr<TrainingRun>> TrainingRun::create(std::shared_ptr<Trainer> trainer, const Options& options) {
  Result<std::unique_ptr<TrainingRun>> run = open(trainer, options);
  if (!run.ok()) trainer->end_world(run.status());
  return run;
}

Result<std::unique_ptr<TrainingRun>> TrainingRun::open(std::shared_ptr<Trainer> trainer, const Options& options) {
  TSR_RETURN_IF_ERROR(trainer->usable());
  TSR_ASSIGN_OR_RETURN(RunSettings settings, read_run_settings(options));
  if (settings.resumes_if_there) {  // what the first process has found there
    TSR_ASSIGN_OR_RETURN(settings.resume, trainer->lead([&]() -> Result<std::string> { return settings.resume; }));
  }
  TSR_RETURN_IF_ERROR(check_held_out(settings, holds_out(*trainer)));
  if (trainer->runtime()->transport() != nullptr && !(settings.samples.empty() && settings.sample_messages.empty()))
    return Status(StatusCode::kUnsupported, "run: samples of text are written by one process, and this one runs with others: option "
                                            "'samples' without them (mpirun), or ask the result for texts");
  TSR_ASSIGN_OR_RETURN(RunOutput output, RunOutput::create(settings, trainer->model()));
  TSR_RETURN_IF_ERROR(trainer->lead_status([&] { return output.check_files(settings); }));
  std::unique_ptr<TrainingRun> run(new TrainingRun(std::move(trainer), std::move(settings), std::move(output)));
  run->steps_ = run->settings_.steps > 0 ? run->settings_.steps : run->trainer_->settings().rate.steps;
  run->checkpoint_every_ = run->settings_.checkpoint_every.value_or((run->steps_ - 1) / kUsualCheckpoints + 1);
  TSR_ASSIGN_OR_RETURN(run->checkpoints_, RunCheckpoints::create(run->settings_, run->trainer_));
  TSR_RETURN_IF_ERROR(run->resume());
  TSR_RETURN_IF_ERROR(run->name_checkpoint(run->open_log()));
  return run;
}

TrainingRun::~TrainingRun() = default;

Status TrainingRun::resume() {
  const std::string& from = settings_.resume;
  if (!from.empty()) {
    TSR_RETURN_IF_ERROR(trainer_->resume(from));
    TSR_RETURN_IF_ERROR(trainer_->lead_status([&] { return output_.check_trained(trainer_); }));
    TSR_ASSIGN_OR_RETURN(const auto notes, checkpoint_notes(from));
    TSR_RETURN_IF_ERROR(evaluations_.restore(notes));
  }
  done_ = written_step_ = trainer_->steps_made();
  if (!from.empty()) {
    if (done_ >= steps_)
      note(RunEvent::Kind::kNote, format("nothing is left to do: the checkpoint is at step {} of option 'steps' {}; to go "
                                         "on, give 'steps' more than {}",
                                         done_, steps_, done_));
    else if (evaluations_.is_stopped())
      note(RunEvent::Kind::kNote, format("nothing is left to do: {}; to go on, give more 'patience'",
                                         evaluations_.stopped_text()));
  }
  note_what_is_kept();
  if (from.empty()) return {};
  TSR_ASSIGN_OR_RETURN(const bool has_best, checkpoints_->resume(from, done_, evaluations_.best_step()));
  note_checkpoint_warnings();
  logged_checkpoint_ = checkpoints_->saved_step();
  if (has_best) return {};
  note(RunEvent::Kind::kWarning, format("the checkpoint of the best step so far, {}, is not next to {}: the best is that of "
                                        "the steps to come",
                                        evaluations_.best_step(), from));
  evaluations_.forget_best();
  return {};
}

void TrainingRun::note_what_is_kept() {
  if (!output_.is_empty() || checkpoints_->writes()) return;
  note(RunEvent::Kind::kWarning,
       settings_.checkpoint_every == 0
           ? "nothing of this run is kept: option 'checkpoint_every' is 0 and there is no option 'out'"
           : "nothing of this run is kept: option 'out' writes the model, option 'checkpoint' only checkpoints");
}

Status TrainingRun::open_log() {
  Options options = trainer_->is_first_process() ? settings_.log : Options{};
  options["steps"] = steps_;
  TSR_ASSIGN_OR_RETURN(log_, RunLog::create(trainer_, options));
  TSR_ASSIGN_OR_RETURN(samples_, RunSamples::create(settings_, trainer_));
  return {};
}

void TrainingRun::note(RunEvent::Kind kind, std::string message) {
  events_.push_back({kind, done_, 0, {{"message", std::move(message)}}});
}

void TrainingRun::note_checkpoint_warnings() {
  for (std::string& warning : checkpoints_->take_warnings()) note(RunEvent::Kind::kWarning, std::move(warning));
}

// A failing log is one warning; the log retries its missing lines with later ones.
Status TrainingRun::log(Status status) {
  if (!status.ok() && status.code() != StatusCode::kIo) return status;
  if (!status.ok() && !is_log_warned_)
    note(RunEvent::Kind::kWarning, format("the run's log was not written: {}; the training goes on, and what is missing is "
                                          "written when that works again",
                                          status.message()));
  is_log_warned_ = !status.ok();
  return {};
}

// Adds the last good checkpoint to an error: the resumed one, then this run's own.
Status TrainingRun::name_checkpoint(Status status) {
  if (status.ok()) return status;
  (void)checkpoints_->wait_here();  // the first error is returned
  const std::string last_good = checkpoints_->last_good();
  if (last_good.empty()) return status;
  return Status(status.code(), format("{}; the last good checkpoint is {} (option 'resume')", status.message(), last_good))
      .with_numbers_of(status);
}

// A forked child lacks the thread that writes checkpoints, so waiting would never end.
Status TrainingRun::check_process() const { return trainer_->runtime()->check_process(); }

// An error of one process ends the others' training too.
Result<RunEvent> TrainingRun::next() {
  TSR_RETURN_IF_ERROR(check_process());
  Result<RunEvent> event = find_next();
  if (!event.ok()) trainer_->end_world(event.status());
  return event;
}

Result<RunEvent> TrainingRun::find_next() {
  while (events_.empty()) {
    if (phase_ == Phase::kEnded) {
      if (!failure_.ok()) return std::exchange(failure_, {});
      return RunEvent{RunEvent::Kind::kEnd, done_, 0, {{"outcome", outcome_}}};
    }
    TSR_RETURN_IF_ERROR(advance());
  }
  RunEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

Status TrainingRun::finish() {
  while (true) {
    TSR_ASSIGN_OR_RETURN(const RunEvent event, next());
    if (event.kind == RunEvent::Kind::kEnd) return {};
  }
}

// Runs one phase. A failed phase is retried by the next call, except the final ones.
Status TrainingRun::advance() {
  const auto attempt = [&](Status status, Phase then) {
    status = name_checkpoint(std::move(status));
    if (!status.ok() && failure_.ok()) failure_ = std::move(status);
    phase_ = then;
    return Status();
  };
  switch (phase_) {
    case Phase::kStep:
      return make_step();
    case Phase::kEvaluate:
      TSR_RETURN_IF_ERROR(name_checkpoint(evaluate_now().status()));
      phase_ = Phase::kSample;
      return {};
    case Phase::kSample:
      TSR_RETURN_IF_ERROR(name_checkpoint(write_samples()));
      phase_ = Phase::kSave;
      return {};
    case Phase::kSave:
      TSR_RETURN_IF_ERROR(name_checkpoint(save_due()));
      phase_ = Phase::kStep;
      return {};
    case Phase::kStopping:
      phase_ = Phase::kEnded;
      return name_checkpoint(end_stopped());
    case Phase::kLastCheckpoint:
      return attempt(make_last_checkpoint(), Phase::kLastEvaluation);
    case Phase::kLastEvaluation:
      evaluation_ = evaluations_.last(done_);
      return attempt(holds_out(*trainer_) ? evaluate_now().status() : Status(), Phase::kLastSamples);
    case Phase::kLastSamples:
      return attempt(evaluations_.is_due(done_, steps_) ? Status() : write_samples(), Phase::kLog);
    case Phase::kLog:
      return attempt(log_->finish(outcome_), Phase::kBest);
    case Phase::kBest:
      phase_ = output_.is_empty() ? Phase::kEnded : Phase::kWrite;
      if (output_.is_empty()) return {};
      if (Status found = load_best_for_output(); !found.ok()) return attempt(std::move(found), Phase::kEnded);
      if (Status begun = output_.begin(trainer_); !begun.ok()) return attempt(std::move(begun), Phase::kEnded);
      return {};
    case Phase::kWrite:
      return write_output();
    case Phase::kEnded:
      phase_ = Phase::kEnded;
      return {};
  }
  return {};
}

// Signals reach the processes at different steps: that of the first one counts. It is never cleared there, since the next may
// come meanwhile.
Status TrainingRun::agree_on_stop() {
  TSR_ASSIGN_OR_RETURN(const bool stops, trainer_->agree(is_stopped_));
  if (!trainer_->is_first_process()) is_stopped_ = stops;
  return {};
}

Status TrainingRun::make_step() {
  TSR_RETURN_IF_ERROR(agree_on_stop());
  if (done_ < steps_ && !evaluations_.is_stopped() && is_stopped_) {
    outcome_ = format("stopped at step {}", done_);
    phase_ = Phase::kStopping;
    return {};
  }
  if (done_ >= steps_ || evaluations_.is_stopped()) {
    is_stopped_ = false;  // after the last step it cancels writing the result
    outcome_ = ends_early() ? format("stopped early at step {}", done_) : "finished";
    if (ends_early() && has_stepped_)
      note(RunEvent::Kind::kNote, format("stopped at step {}: {}", done_, evaluations_.stopped_text()));
    phase_ = Phase::kLastCheckpoint;
    return {};
  }
  Result<StepInfo> made = trainer_->step();
  if (!made.ok()) return name_checkpoint(made.status());
  const StepInfo& step = *made;
  done_ = written_step_ = step.step;
  has_stepped_ = true;
  is_best_ = false;
  losses_.push_back(step.loss);
  phase_ = evaluations_.is_due(done_, steps_) ? Phase::kEvaluate : Phase::kSave;
  TSR_RETURN_IF_ERROR(name_checkpoint(log(log_->add_step())));
  Json details = {
      {"step", step.step}, {"loss", step.loss}, {"grad_norm", step.grad_norm}, {"lr", step.lr}, {"seconds", step.seconds}};
  if (trainer_->settings().preference) {
    const Json rewards = rewards_object(step.preference);
    rewards_.push_back(rewards);
    details.update(rewards);
    for (const auto& [name, value] : rewards.items())
      TSR_RETURN_IF_ERROR(name_checkpoint(log(log_->add_value("rewards/" + name, value.get<double>()))));
  }
  const Json summary = Json::parse(log_->summary_json());
  for (const char* key : {"steps", "eval_loss", "tokens_per_second", "seconds_left", "memory_bytes"})
    details[key] = summary[key];
  events_.push_back({RunEvent::Kind::kStep, step.step, step.loss, std::move(details)});
  return {};
}

Result<Evaluation> TrainingRun::evaluate() {
  TSR_RETURN_IF_ERROR(check_process());
  Result<Evaluation> made = evaluate_now();
  if (!made.ok()) return name_checkpoint(made.status());
  return made;
}

Result<Evaluation> TrainingRun::evaluate_now() {
  // At the end the trainer may hold the best step's values.
  if (const std::optional<Evaluation> known = evaluations_.last(trainer_->steps_made())) return *known;
  TSR_ASSIGN_OR_RETURN(const Evaluation evaluation, trainer_->evaluate());
  if (phase_ > Phase::kLog) return evaluation;  // the log is closed
  const double accuracy =
      evaluation.labels > 0 ? static_cast<double>(evaluation.correct) / static_cast<double>(evaluation.labels) : NAN;
  TSR_RETURN_IF_ERROR(log(log_->add_evaluation(evaluation.loss, accuracy)));
  evaluation_ = evaluation;
  const bool counts = phase_ < Phase::kStopping;
  is_best_ = counts && evaluations_.add(done_, evaluation);
  if (!counts) evaluations_.note(done_, evaluation);
  // The caller evaluated after this step's checkpoint was saved.
  if (is_best_ && evaluations_.keeps_best() && phase_ == Phase::kStep) phase_ = Phase::kSave;
  Json details = Json::parse(evaluation_json(evaluation));
  details["is_best"] = is_best_;
  events_.push_back({RunEvent::Kind::kEvaluation, done_, evaluation.loss, std::move(details)});
  return evaluation;
}

Status TrainingRun::write_samples() {
  TSR_ASSIGN_OR_RETURN(const std::vector<RunSample> written, samples_->write());
  for (const RunSample& sample : written) {
    TSR_RETURN_IF_ERROR(log(log_->add_sample(sample.prompt, sample.text)));
    events_.push_back({RunEvent::Kind::kSample, done_, 0, {{"prompt", sample.prompt}, {"text", sample.text}}});
  }
  return {};
}

// Logs a checkpoint once it is complete, while it is the newest.
Status TrainingRun::log_saved() {
  TSR_RETURN_IF_ERROR(checkpoints_->wait());
  note_checkpoint_warnings();
  const int64_t saved = checkpoints_->saved_step();
  if (!checkpoints_->writes() || saved == logged_checkpoint_) return {};
  logged_checkpoint_ = saved;
  events_.push_back({RunEvent::Kind::kCheckpoint, saved, 0, {{"path", checkpoints_->folder()}, {"step", saved}}});
  return log(log_->add_checkpoint(checkpoints_->folder()));
}

Status TrainingRun::save_as(bool is_best) {
  TSR_RETURN_IF_ERROR(log_saved());
  TSR_RETURN_IF_ERROR(checkpoints_->save(done_, is_best, evaluations_.notes()));
  is_best_ = is_best_ && !is_best;
  note_checkpoint_warnings();
  return {};
}

Status TrainingRun::save_due() {
  const bool is_best = is_best_ && evaluations_.keeps_best();
  if (!checkpoints_->writes()) return {};
  const bool is_due = done_ % checkpoint_every_ == 0 && checkpoints_->saved_step() != done_;
  if (!is_due && !is_best) return {};
  return save_as(is_best);
}

Status TrainingRun::save() {
  TSR_RETURN_IF_ERROR(check_process());
  if (!checkpoints_->writes())
    return Status(StatusCode::kFailedPrecondition,
                  "this run writes no checkpoints: options 'out' or 'checkpoint' say where, 'checkpoint_every' how often");
  const auto work = [&]() -> Status {
    TSR_RETURN_IF_ERROR(log_saved());
    const bool is_best = is_best_ && evaluations_.keeps_best();
    if (is_saved() && !is_best) return {};
    TSR_RETURN_IF_ERROR(save_as(is_best));
    TSR_RETURN_IF_ERROR(checkpoints_->finish());
    return log_saved();
  };
  return name_checkpoint(work());
}

// A last checkpoint is also due if the steps are no multiple of the cadence.
Status TrainingRun::make_last_checkpoint() {
  TSR_RETURN_IF_ERROR(log_saved());
  if (!is_saved()) TSR_RETURN_IF_ERROR(save_as(false));
  TSR_RETURN_IF_ERROR(checkpoints_->finish());
  return log_saved();
}

Status TrainingRun::end_stopped() {
  TSR_RETURN_IF_ERROR(make_last_checkpoint());
  if (const Status ended = log_->finish(outcome_); !ended.ok())
    note(RunEvent::Kind::kWarning, format("the run's log has no end: {}", ended.message()));
  return {};
}

Result<bool> TrainingRun::load_best() {
  TSR_RETURN_IF_ERROR(check_process());
  if (phase_ != Phase::kEnded)
    return Status(StatusCode::kFailedPrecondition, "the run goes on; wanted one that has ended (TSR_RUN_END)");
  return load_best_values();
}

Result<bool> TrainingRun::load_best_values() {
  const int64_t best = evaluations_.best_step();
  const std::string folder = best_folder(checkpoints_->folder());
  if (!checkpoints_->writes() || best == 0) return false;
  TSR_RETURN_IF_ERROR(checkpoints_->wait());
  bool is_there = false;
  TSR_RETURN_IF_ERROR(trainer_->lead_status([&]() -> Status {
    const Result<CheckpointReader> checkpoint = CheckpointReader::open(folder);
    is_there = checkpoint.ok() && checkpoint->info().step == best;
    return checkpoint.status().code() == StatusCode::kNotFound ? Status() : checkpoint.status();
  }));
  TSR_ASSIGN_OR_RETURN(is_there, trainer_->agree(is_there));
  if (is_there) TSR_RETURN_IF_ERROR(trainer_->resume(folder));
  return is_there;
}

Status TrainingRun::load_best_for_output() {
  const int64_t best = evaluations_.best_step();
  if (!evaluations_.keeps_best() || best == 0 || best == done_) return {};
  TSR_ASSIGN_OR_RETURN(const bool is_loaded, load_best_values());
  if (!is_loaded) {
    note(RunEvent::Kind::kWarning, format("the checkpoint of the best step, {}, is not in {}: the result has the values of "
                                          "step {}",
                                          best, best_folder(checkpoints_->folder()), done_));
    return {};
  }
  written_step_ = best;
  TSR_ASSIGN_OR_RETURN(evaluation_, trainer_->evaluate());
  return {};
}

Status TrainingRun::write_output() {
  TSR_RETURN_IF_ERROR(agree_on_stop());
  if (is_stopped_) {
    output_.cancel();
    phase_ = Phase::kEnded;
    return name_checkpoint(Status(StatusCode::kCancelled, format("writing {} was stopped", output_.path())));
  }
  const Result<double> done = output_.step();
  if (!done.ok()) {
    output_.cancel();
    phase_ = Phase::kEnded;
    return name_checkpoint(done.status());
  }
  events_.push_back(
      {RunEvent::Kind::kProgress, done_, 0, {{"work", "writing " + output_.path()}, {"done", *done}}});
  if (*done < 1) return {};
  is_written_ = true;
  for (const std::string& text : output_.notes()) note(RunEvent::Kind::kNote, text);
  phase_ = Phase::kEnded;
  return {};
}

}  // namespace tessera
