// TrainArguments: the arguments of `tessera train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "adapter_options.h"
#include "command.h"
#include "data_options.h"
#include "preference_options.h"
#include "run_options.h"

namespace cli {

struct TrainArguments : Common {
  std::string model, method, init, trained, frozen, trace, offload_folder, precision, weights, fused_loss;
  DataOptions data;
  RunOptions run;
  // Absent: the library's default.
  std::optional<std::string> schedule, decay_shape, optimizer, muon_scale, groups;
  std::optional<double> lr, lr_end, decay_fraction, lora_plus_ratio, clip_norm, watchdog, loss_scaling,
      weight_decay, momentum, dropout;
  std::optional<int64_t> batch, accumulate, warmup, eval_batches;
  Adapters adapters;
  LossOptions losses;
};

void add_train_arguments(CLI::App& command, TrainArguments& args);
// The options of tsr_trainer_new.
Options trainer_options(const TrainArguments& args);

}  // namespace cli
