// Settings of trainers, generators and scorers, read from Options; the keys are documented in tessera.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/engine/options.h"
#include "graph/base/dtype.h"
#include "graph/plan_pins.h"
#include "graph/transform/embedding.h"
#include "graph/transform/preference_loss.h"
#include "graph/transform/token_loss.h"
#include "graph/transform/training.h"

namespace tessera {

// LearningRate: the rate of each step; a pure function of the step, so there is no schedule state to save.
struct LearningRate {
  enum class Kind { kConstant, kCosine, kLinear, kWsd } kind = Kind::kConstant;
  enum class DecayShape { kLinear, kSqrt };  // from 1 to 0 over x in [0, 1]: 1 - x, 1 - sqrt(x)
  double peak = 1e-4;       // for weights that are trained already; from scratch 1e-3 and more
  double end_fraction = 0;  // of the peak, at the end of the way down, which would be step `steps` + 1
  int64_t warmup = 10;      // steps of linear rise; step `warmup` has the peak
  int64_t steps = 100;      // the rate of the last one stays
  double decay_fraction = 0.1;  // kWsd: share of the steps, the last ones, on the way down
  DecayShape decay_shape = DecayShape::kLinear;

  double at(int64_t step) const;  // step 1, 2, ...

 private:
  double wsd_left(int64_t step) const;
};

// ComputeSettings: devices, plan and precision; common to trainers, generators and scorers.
struct ComputeSettings {
  std::string devices = "cpu:1";
  std::string parallel;   // pins; empty: the planner decides
  std::string plan_file;  // instead of planning
  std::string plan_text;  // the same: a checkpoint's plan
  std::string profile;    // device profile: a file, "auto" or "none"; empty: the runtime's
  PlanPins pins;          // single decisions in addition to `parallel`
  int64_t memory_limit = 0;
  int64_t host_memory_limit = 0;  // all ranks together
  int64_t measure = 0;            // number of fastest predicted plans that are tried; the fastest is used
  bool tune = false;              // time algorithms unknown to the profile, and add them to it
  bool trace = false;             // record runs; and predict them in the plan

  bool has_given_plan() const { return !plan_file.empty() || !plan_text.empty(); }
};

// Activations: what multiplies weights (ops.md, quantized_matmul): f32, rows rounded to 8 bits for block types (kQ8),
// numbers rounded to bf16 for weights in bf16 (kBF16), or both (kRounded). kAuto: what the devices are faster with.
enum class Activations : uint8_t { kAuto, kF32, kQ8, kBF16, kRounded };
inline bool rounds_to_q8(Activations it) { return it == Activations::kQ8 || it == Activations::kRounded; }
inline bool rounds_to_bf16(Activations it) { return it == Activations::kBF16 || it == Activations::kRounded; }

// FusedLoss: head and token loss as one op that never holds the logits (graph/transform/fusion.h). kAuto:
// on GPUs, where the plan is not slower.
enum class FusedLoss : uint8_t { kAuto, kOn, kOff };

struct TrainerSettings {
  ComputeSettings compute;
  int64_t batch = 8, seq = 0;  // seq 0: no symbol T
  int64_t accumulate = 1;      // batches of a dataset whose gradients make one update
  std::optional<SegmentUse> segments;  // as the dataset's rows want
  bool has_weights = false;            // of labels, in those rows
  std::vector<std::pair<std::string, int64_t>> symbols;
  LearningRate rate;
  TrainingOptions step;
  uint64_t seed = 0;
  double dropout = -1;  // -1: as the model says
  // Element type of the computation; optimizer state and parameters are f32. With fp8 matmuls (step): the
  // type of everything else, chosen once the devices are known.
  DType precision = DType::kF32;
  bool tf32_matmuls = false;  // with f32: graph/transform/precision.h
  bool bf16_weights = false;  // except trained ones, with this: graph/transform/precision.h
  std::optional<DType>
      eval_weights;  // of a trainer that evaluates only: WeightStorage::matrices, except bf16
  Activations eval_activations = Activations::kF32;  // of a trainer that evaluates only
  FusedLoss fused_loss = FusedLoss::kAuto;
  std::string trained, frozen;  // patterns
  int64_t eval_batches = 0;
  bool evaluate_only = false;
  std::vector<TokenLoss> losses;  // of steps in parts (tsr_trainer_forward_backward); none: whole steps alone
  bool batch_segments = false;    // whether those parts take several documents in a row
  std::optional<PreferenceOptions> preference;  // the loss of whole steps; none: of tokens
  std::string reference;  // of the preferences: a model's file; "": the model as it was given
  bool measure_memory = true;
  double watchdog_s = 60;
  std::string offload_folder;

  int64_t answers() const {
    return preference && is_paired(preference->loss) ? 2 : 1;
  }  // of seq tokens, a row
};

// How one text of a generator is drawn and where it ends.
struct TextSettings {
  int64_t max_tokens = 0;  // 0: until the context is full
  double temperature = 0.8, top_p = 1;
  int64_t top_k = 0;
  std::optional<int64_t> seed;  // none: every text draws one of its own
  bool echo = false;
  bool special = false;  // control tokens written out in a prompt are read as such
  std::vector<std::string> stop;
  std::vector<int64_t> stop_ids;
};

// InferenceSettings: what generators and scorers compute in, and how they keep weights.
struct InferenceSettings {
  DType precision = DType::kF32;  // of activations and caches
  bool tf32_matmuls = false;      // with f32
  std::optional<DType> weights;   // WeightStorage::matrices
  Activations activations = Activations::kAuto;
  bool repack = true;  // weights of block types are kept as the fastest kernels read them
};

// A generator's context: the model's own, as far as memory allows.
inline constexpr int64_t kWholeContext = -1, kMostWholeContext = int64_t{1} << 17;

struct GeneratorSettings {
  ComputeSettings compute;
  InferenceSettings inference;
  int64_t context = 0;  // 0: the model's, at most 2048; kWholeContext: as far as memory allows
  TextSettings text;    // of texts that say nothing else
};

// ScorerSettings: how texts are cut into windows, and how these are computed.
struct ScorerSettings {
  // Whether windows begin with the BOS token of the model's tokenizer: where texts do, or in any case.
  enum class Bos : uint8_t { kNone, kAuto, kAlways };

  ComputeSettings compute;
  InferenceSettings inference;
  int64_t seq = 0;     // tokens of a window; 0: the model's context, at most 2048
  int64_t stride = 0;  // 0: half of it
  int64_t batch = 0;   // windows at once; 0: as many as devices
  Bos bos = Bos::kNone;
  bool measure_memory = false;
};

// EmbedderSettings: what is computed of texts, and how many at once.
struct EmbedderSettings {
  // kAuto: what the model's file says, else mean in both directions and last of causal models. kNone and kRank: a file
  // says that its vectors are those of tokens, or that its model is a reranker; neither makes a vector of a text.
  enum class Pooling : uint8_t { kAuto, kMean, kCls, kLast, kNone, kRank };
  enum class Output : uint8_t { kEmbedding, kLogits, kProbabilities };

  ComputeSettings compute;
  InferenceSettings inference;
  int64_t seq =
      0;  // tokens of a text, at most; 0: what the model's file says, else its context, at most 2048
  int64_t batch = 0;  // texts at once; 0: 8 for each device
  Pooling pooling = Pooling::kAuto;
  std::optional<bool> normalize;  // to length 1; none: as the model's file says
  Output output = Output::kEmbedding;
  bool pairs = false;  // texts 2i and 2i + 1 are read together
  bool measure_memory = false;
};

// ImportanceSettings: how a text is cut into windows whose inputs of matrices are summed.
struct ImportanceSettings {
  ComputeSettings compute;
  int64_t seq = 0;    // tokens of a window; 0: the model's context, at most 512
  int64_t batch = 0;  // windows at once; 0: as many as devices
  ScorerSettings::Bos bos = ScorerSettings::Bos::kNone;
  std::string name;   // of the text
};

// The options that readers of several kinds have in common; `consumer` names the reader in messages.
ComputeSettings read_compute(OptionReader& reader);
InferenceSettings read_inference(OptionReader& reader, std::string_view consumer);

// The options of preference losses (preference_settings.cc).
void read_preference(OptionReader& reader, TrainerSettings& settings);

// `dataset_seq`: the dataset's, 0 without one.
Result<TrainerSettings> read_trainer_settings(const Options& options, int64_t dataset_seq);
Result<GeneratorSettings> read_generator_settings(const Options& options);
Result<ScorerSettings> read_scorer_settings(const Options& options);
Result<EmbedderSettings> read_embedder_settings(const Options& options);
Result<ImportanceSettings> read_importance_settings(const Options& options);
// Options of one text; what they leave out is as in `otherwise`.
Result<TextSettings> read_text_settings(const Options& options, const TextSettings& otherwise);
// The names of those options.
const std::vector<std::string>& text_option_names();

// The end of messages about texts that are longer than the model's context.
inline constexpr std::string_view kLongerContext =
    "; a model with rotary positions reads longer texts where its file says so: rope_scaling of type yarn, or "
    "max_position_embeddings, in config.json";

// Tokens that a model reads at once: those that are given or, for 0, the model's context (`longest`, 0: unknown), at most
// 2048. kInvalidArgument when they exceed it; `what` begins the message: "generator: option 'context'".
Result<int64_t> tokens_at_once(int64_t given, int64_t longest, std::string_view what);

// Fills in a missing context length; kInvalidArgument when it exceeds the model's (`longest`, 0: unknown).
Status finalize_context(GeneratorSettings& settings, int64_t longest);

// Fills in window, stride and batch; kInvalidArgument for a window above the model's context (`longest`, 0: unknown),
// or a stride above the window.
Status finalize_windows(ScorerSettings& settings, int64_t longest, int32_t devices);

// Fills in tokens and batch. `longest`: the model's context, `wanted`: the tokens of a text that its file names; 0:
// unknown. kInvalidArgument for more tokens than the context.
Status finalize_texts(EmbedderSettings& settings, int64_t longest, int64_t wanted, int32_t devices);

// Options of tsr_graph_training: only the optimizer's.
Result<TrainingOptions> read_training_options(const Options& options);

}  // namespace tessera
