// RunLog: the course of a training run, in files: JSON lines, TensorBoard's events, a page. It also estimates the time
// left, and how near steps are to the physical limit. One thread at a time; `add_step` and `add_evaluation` use the
// trainer.
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
  // Opens the files that the options name. Where a trainer resumed at a step, lines of later steps are dropped.
  static Result<std::unique_ptr<RunLog>> create(std::shared_ptr<Trainer> trainer, const Options& options);
  ~RunLog();  // a page says that the run stopped, unless `finish` said how

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
  Status record(Json line);  // to the lines and the page
  Status write_page(bool is_due);
  bool has_perplexity() const { return !trainer_->settings().preference; }  // whether the loss is one of tokens
  void note_evaluation(double loss, int64_t step);
  void take_memory();
  double step_s() const;  // the median of the last steps; 0: none
  double seconds_left() const;

  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<Trainer> trainer_;
  std::string metrics_path_, events_folder_, page_path_;
  double page_seconds_ = 10;
  int64_t steps_ = 0;  // of the whole run; 0: not known
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
