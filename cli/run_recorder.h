// RunRecorder: the reports of a training run to people: the line of progress, metrics, the page.
#pragma once

#include <string>

#include "command.h"

namespace cli {

// RunFiles: --metrics, --tensorboard, --report.
struct RunFiles {
  std::string metrics, tensorboard, report;
};
void add_run_files(CLI::App& command, RunFiles& files);

// A file that cannot be written, on a full disk for example, is a warning: the log keeps what is missing and writes it
// with a later line. `finish` throws where it is still missing.
class RunRecorder {
 public:
  // Opens the files. Options given on `command` are shown as settings. After a resume the files lose what they have of
  // steps after the trainer's.
  RunRecorder(const CLI::App& command, const RunFiles& files, const Trainer& trainer, int64_t steps,
              const std::string& model, const std::string& data);

  void add_step() const;  // the trainer's last
  // Numbers of the step by name, each behind `prefix`.
  void add_values(const std::string& prefix, const Json& values) const;
  void add_evaluation(const Json& evaluation) const;  // as tsr_trainer_evaluate_all has it
  void add_sample(const std::string& prompt, const std::string& text) const;
  void add_checkpoint(const std::string& folder) const;
  void finish(const std::string& outcome) const;

  Json summary() const;  // as tsr_run_log_summary has it
  // "step 30/200  loss 2.1033  held out 2.2012  12034 tokens/s  1 min 20 s left  12.00 MiB".
  std::string progress_line(const tsr_step& step) const;
  // "74 % of the physical limit: ..."; empty before the first step.
  std::string limit_line() const;

 private:
  void warn(tsr_status* status) const;  // once until it succeeds again; other errors are thrown

  const Handle<tsr_run_log, tsr_run_log_free> log_;
  mutable bool is_warned_ = false;
};

}  // namespace cli
