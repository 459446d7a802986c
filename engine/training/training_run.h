// TrainingRun: a training from its first step to its result: steps, evaluations of held-out rows, samples, checkpoints (the newest,
// the best), early stopping, metrics and report, the file or folder of the result. It goes on one event at a time, so that its
// owner can show what happens, and stop it. One thread at a time, except for `stop`.
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
  Json details;     // tessera.h, at tsr_run_event
};

class TrainingRun {
 public:
  // What can be known before the trainer is there. `model` and `dataset` may be null: not looked at.
  static Status check(const Options& options, const std::shared_ptr<SharedModel>& model,
                      const std::shared_ptr<const Dataset>& dataset);
  // Resumes the trainer, where the options name a checkpoint, and opens folders and files.
  static Result<std::unique_ptr<TrainingRun>> create(std::shared_ptr<Trainer> trainer, const Options& options);
  ~TrainingRun();

  // Goes on until something has happened. kEnd once all is done, and at each later call. After a failed step, evaluation or
  // checkpoint another call tries again.
  Result<RunEvent> next();
  Status finish();  // goes on to the end
  // Async-signal-safe, any thread: the run saves a checkpoint after the step in progress, and ends.
  void stop() { is_stopped_ = true; }

  Result<Evaluation> evaluate();  // now; it counts as the evaluation of this step
  Status save();                  // a checkpoint now, whole when this returns
  // At the end: loads the values of the best step into the trainer, from its checkpoint. False: it is not there.
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
  Status check_process() const;
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
  Status log(Status status);  // of the run log: a full disk is a warning
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
  bool is_best_ = false;            // the evaluation of this step, of those so far; no checkpoint has it yet
  bool is_log_warned_ = false;
  bool is_written_ = false;  // the result
  bool has_stepped_ = false;
  std::optional<Evaluation> evaluation_;  // of what is written
  std::string outcome_;                   // empty: it goes on
  Status failure_;                        // the first one of the end, where the result is still tried
  std::vector<double> losses_;
  Json rewards_ = Json::array();
};

}  // namespace tessera
