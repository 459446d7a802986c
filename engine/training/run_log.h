// RunLog: writes the course of a training run to files: JSON lines, TensorBoard
// events, a page. It estimates the remaining time and compares steps to the physical
// limit. One thread at a time; `add_step` and `add_evaluation` read the trainer.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/options.h"
#include "engine/program/step_limit.h"
#include "engine/training/trainer.h"
#include "serialize/run_log/event_file.h"
#include "serialize/run_log/line_file.h"
#include "serialize/run_log/run_series.h"

namespace tessera {

class RunLog {
 public:
  // Opens the files that the options name. For a trainer resumed at a step, later steps' lines are dropped.
  static Result<std::unique_ptr<RunLog>> create(std::shared_ptr<Trainer> trainer, const Options& options);
  ~RunLog();  // without `finish`, the page shows a stopped run

  Status add_step();                                    // the trainer's last
  Status add_evaluation(double loss, double accuracy);  // accuracy NaN: unknown
  Status add_value(std::string_view name, double value);
  Status add_sample(std::string_view prompt, std::string_view text);
  Status add_checkpoint(const std::string& path);
  std::string summary_json() const;
  Status finish(const std::string& outcome);

  bool in_creating_process() const { return trainer_->runtime()->in_creating_process(); }

 private:
  explicit RunLog(std::shared_ptr<Trainer> trainer) : trainer_(std::move(trainer)) {}
  Status read_options(const Options& options);
  Status describe();
  Status open_files();
  Status record(Json line);  // to the JSON lines and the page
  Status write_page(bool is_due);
  bool has_perplexity() const { return !trainer_->settings().preference; }  // whether the loss is per token
  void note_evaluation(double loss, int64_t step);
  void take_memory();
  double step_s() const;  // median of recent steps; 0: none
  double seconds_left() const;

  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<Trainer> trainer_;
  std::string metrics_path_, events_folder_, page_path_;
  double page_seconds_ = 10;
  int64_t steps_ = 0;  // of the whole run; 0: unknown
  std::optional<LineFile> lines_;
  std::optional<EventFile> events_;
  RunSeries series_;
  StepLimit limit_;
  Json header_, explanation_, memory_;
  std::string outcome_;  // empty: running
  bool is_finished_ = false;

  int64_t step_ = 0, first_step_ = 0, measured_steps_ = 0;
  double loss_ = 0, smooth_loss_ = 0;
  std::deque<double> last_steps_s_;
  double steps_s_ = 0;                          // sum of steps
  double least_step_s_ = 0;
  std::optional<double> first_evaluation_, evaluation_, best_evaluation_;
  int64_t best_step_ = 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point page_written_ = begin_;
};

}  // namespace tessera
