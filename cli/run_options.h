// Options of a training run (tsr_run_new), as arguments of `tessera train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command.h"

namespace cli {

struct RunOptions {
  std::string output, resume, checkpoint, metrics, tensorboard, report;
  std::optional<int64_t> checkpoint_every;  // absent: the library's default
  int64_t steps = 100, keep = 1, eval_every = 0, patience = 0, sample_tokens = 48;
  double min_delta = 0;
  bool merge = false, overwrite = false, keep_best = false;
  std::vector<std::string> samples, sample_messages;
};

void add_run_options(CLI::App& command, RunOptions& run);
// `command`: whose given options are shown as settings. `model`, `data`: their names, to show.
Options run_options(const CLI::App& command, const RunOptions& run, const std::string& model, const std::string& data);

}  // namespace cli
