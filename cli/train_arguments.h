// TrainArguments: the words of `tessera train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command.h"
#include "data_options.h"
#include "held_out.h"
#include "preference_options.h"
#include "run_recorder.h"
#include "run_samples.h"

namespace cli {

struct TrainArguments : Common {
  std::string model, method, output, resume, init, checkpoint, trained, frozen, trace, offload_folder,
      precision, weights, fused_loss;
  int64_t steps = 100;
  DataOptions data;
  RunFiles files;
  // Absent: the library decides.
  std::optional<std::string> schedule, decay_shape, optimizer, muon_scale, groups;
  std::optional<double> lr, lr_end, decay_fraction, lora_plus_ratio, clip_norm, watchdog, loss_scaling,
      weight_decay, momentum, dropout;
  std::optional<int64_t> batch, accumulate, warmup, checkpoint_every, eval_batches;
  int64_t keep = 1;
  bool merge = false, overwrite = false;
  HeldOutOptions held_out;
  SampleOptions samples;
  Adapters adapters;
  LossOptions losses;
};

void add_train_arguments(CLI::App& command, TrainArguments& args);
// The options of tsr_trainer_new.
Options trainer_options(const TrainArguments& args);

}  // namespace cli
