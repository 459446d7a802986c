// Settings of trainers, read from Options. Keys: tessera.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/compute_settings.h"
#include "engine/base/options.h"
#include "engine/settings/learning_rate.h"
#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "graph/transform/embedding.h"
#include "graph/transform/preference_loss.h"
#include "graph/transform/token_loss.h"
#include "graph/transform/training.h"

namespace tessera {

// FusedLoss: head and token loss as one op that never stores the logits
// (graph/transform/fusion.h). kAuto: on GPUs, if the plan is not slower.
enum class FusedLoss : uint8_t { kAuto, kOn, kOff };

struct TrainerSettings {
  ComputeSettings compute;
  int64_t batch = 8, seq = 0;  // seq 0: no symbol T
  int64_t accumulate = 1;      // batches whose gradients make one update
  std::optional<SegmentUse> segments;  // as required by the dataset's rows
  bool has_weights = false;            // of labels in those rows
  std::vector<std::pair<std::string, int64_t>> symbols;
  LearningRate rate;
  TrainingOptions step;
  uint64_t seed = 0;
  double dropout = -1;  // -1: the model's
  // Element type of the computation; parameters and optimizer state are f32. With fp8
  // matmuls (step) the type of everything else, chosen once the devices are known.
  DType precision = DType::kF32;
  bool tf32_matmuls = false;  // with f32: graph/transform/precision.h
  bool bf16_weights = false;  // trained parameters are bf16: graph/transform/precision.h
  std::optional<DType>
      eval_weights;  // for evaluation only: WeightStorage::matrices, except bf16
  Activations eval_activations = Activations::kF32;  // for evaluation only
  FusedLoss fused_loss = FusedLoss::kAuto;
  std::string trained, frozen;  // patterns
  int64_t eval_batches = 0;
  bool evaluate_only = false;
  std::vector<TokenLoss> losses;  // of partial steps (tsr_trainer_forward_backward); empty: whole steps only
  bool batch_segments = false;    // partial steps accept several documents per row
  int64_t adapters = 0, adapter_rank = 16;      // slots for adapters that train side by side (graph/transform/adapter_slots.h)
  bool adapter_dropout = false;                 // they may have dropout
  std::string adapter_pattern;                      // the weights that they may change, as in add_adapters
  std::vector<std::string> adapter_weights;     // their names (adapted_weights)
  std::optional<PreferenceOptions> preference;  // the loss of whole steps; nullopt: a token loss
  std::string reference;  // of preferences: a model's file; "": the untrained model
  bool measure_memory = true;
  double watchdog_s = 60;
  std::string offload_folder;

  int64_t answers() const {
    return preference && is_paired(preference->loss) ? 2 : 1;
  }  // tokens of a row
};

// `dataset_seq`: the dataset's row length; 0 without a dataset.
Result<TrainerSettings> read_trainer_settings(const Options& options, int64_t dataset_seq);
// Reads the options of preference losses (preference_settings.cc).
void read_preference(OptionReader& reader, TrainerSettings& settings);
// Reads the options of tsr_graph_training: the optimizer's only.
Result<TrainingOptions> read_training_options(const Options& options);

}  // namespace tessera
