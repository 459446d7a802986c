// Settings of training runs, read from Options. Keys: tessera.h, at tsr_run_new.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "graph/base/result.h"

namespace tessera {

struct RunSettings {
  std::string out;         // the result's file or folder; "": none
  bool merge = false;      // merges adapters into the weights of `out`
  bool overwrite = false;  // replaces an earlier run's result and checkpoint
  std::string resume;      // the folder of a checkpoint; "": none
  bool resumes_if_there = false;  // option resume is auto: `resume` is the run's own checkpoint, where there is one
  int64_t steps = 0;       // 0: the trainer's

  std::string checkpoint;                   // folder of the newest checkpoint; "": no checkpoints
  std::optional<int64_t> checkpoint_every;  // in steps; nullopt: a tenth of `steps`
  int64_t keep = 1;                         // number of newest checkpoints to keep

  int64_t eval_every = 0;  // steps; 0: one evaluation at the end
  bool keeps_best = false;
  int64_t patience = 0;  // consecutive evaluations without improvement that end the run; 0: any number
  double min_delta = 0;  // smallest decrease of the loss that counts as an improvement

  std::vector<std::string> samples, sample_messages;  // prompts, and users' messages
  int64_t sample_tokens = 48;

  Options log;  // of the run log
};

// Checks everything that needs no trainer: values, contradictions, files of an earlier run.
Result<RunSettings> read_run_settings(const Options& options);

// The checkpoint folder that `name` means: the folder itself, or that of the model or adapters at `name`.
Result<std::string> resumed_folder(const std::string& name);

}  // namespace tessera
