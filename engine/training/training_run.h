// TrainingRun: a training from the first step to its result: steps, evaluation, samples,
// checkpoints, early stopping, log, report, output. It advances one event at a time, so
// that the owner can show progress and stop it. One thread at a time, except `stop`.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/settings/run_settings.h"
#include "engine/training/run_checkpoints.h"
#include "engine/training/run_evaluations.h"
#include "engine/training/run_log.h"
#include "engine/training/run_output.h"
#include "engine/training/run_samples.h"
#include "engine/training/trainer.h"
#include "text/json.h"

namespace tessera {

struct RunEvent {
  // Values are those of TSR_RUN_*.
  enum class Kind : int32_t {
    kEnd = 0,
    kStep = 1,
    kEvaluation = 2,
    kSample = 3,
    kCheckpoint = 4,
    kProgress = 5,
    kNote = 6,
    kWarning = 7
  } kind = Kind::kEnd;
  int64_t step = 0;
  double loss = 0;  // of kStep and kEvaluation
  Json details;     // see tsr_run_event in tessera.h
};

class TrainingRun {
 public:
  // Checks possible before the trainer exists. `model` and `dataset` may be null.
  static Status check(const Options& options, const std::shared_ptr<SharedModel>& model,
                      const std::shared_ptr<const Dataset>& dataset);
  // Resumes the trainer if the options name a checkpoint; opens folders and files.
  static Result<std::unique_ptr<TrainingRun>> create(std::shared_ptr<Trainer> trainer, const Options& options);
  ~TrainingRun();

  // Advances to the next event; kEnd when all is done. After a
  // failed step, evaluation or checkpoint the next call retries.
  Result<RunEvent> next();
  Status finish();  // runs to the end
  // Async-signal-safe, any thread: the run saves a checkpoint after the step in progress, and ends.
  void stop() { is_stopped_ = true; }

  Result<Evaluation> evaluate();  // now; replaces this step's evaluation
  Status save();                  // a checkpoint now, complete on return
  // At the end: loads the best step's values into the trainer. False: its checkpoint is missing.
  Result<bool> load_best();
  std::string report_json();

  bool in_creating_process() const { return trainer_->runtime()->in_creating_process(); }

 private:
  enum class Phase : uint8_t {
    kStep,
    kEvaluate,
    kSample,
    kSave,
    kStopping,
    kLastCheckpoint,
    kLastEvaluation,
    kLastSamples,
    kLog,
    kBest,
    kWrite,
    kEnded
  };

  TrainingRun(std::shared_ptr<Trainer> trainer, RunSettings settings, RunOutput output)
      : settings_(std::move(settings)),
        trainer_(std::move(trainer)),
        evaluations_(settings_),
        output_(std::move(output)) {}
  static Result<std::unique_ptr<TrainingRun>> open(std::shared_ptr<Trainer> trainer, const Options& options);
  Status check_process() const;
  Result<RunEvent> find_next();
  Status agree_on_stop();
  Status resume();
  Status open_log();
  Status advance();
  Status make_step();
  Result<Evaluation> evaluate_now();
  Status write_samples();
  Status save_due();
  Status save_as(bool is_best);
  Status log_saved();
  Status end_stopped();
  Status make_last_checkpoint();
  Result<bool> load_best_values();
  Status load_best_for_output();
  Status write_output();
  Status log(Status status);  // a full disk is a warning
  Status name_checkpoint(Status status);
  void note(RunEvent::Kind kind, std::string message);
  void note_what_is_kept();
  void note_checkpoint_warnings();
  bool is_saved() const { return !checkpoints_->writes() || checkpoints_->saved_step() == done_; }
  bool ends_early() const { return evaluations_.is_stopped() && done_ < steps_; }

  const RunSettings settings_;
  const std::shared_ptr<Trainer> trainer_;
  RunEvaluations evaluations_;
  RunOutput output_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
  std::unique_ptr<RunSamples> samples_;
  std::unique_ptr<RunLog> log_;
  int64_t steps_ = 0;             // of the whole run
  int64_t checkpoint_every_ = 0;  // steps
  Phase phase_ = Phase::kStep;
  std::deque<RunEvent> events_;
  std::atomic<bool> is_stopped_{false};
  int64_t done_ = 0, written_step_ = 0;
  int64_t logged_checkpoint_ = -1;  // its step
  bool is_best_ = false;            // this step's evaluation is the best so far and not saved yet
  bool is_log_warned_ = false;
  bool is_written_ = false;  // the result
  bool has_stepped_ = false;
  std::optional<Evaluation> evaluation_;  // of the values in the result
  std::string outcome_;                   // empty: in progress
  Status failure_;                        // first failure of the final phases; the result is still written
  std::vector<double> losses_;
  Json rewards_ = Json::array();
};

}  // namespace tessera
