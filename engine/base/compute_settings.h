// Settings that trainers, generators, scorers and embedders share: devices, plan and precision. Keys: tessera.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/options.h"
#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "graph/plan_pins.h"

namespace tessera {

// ComputeSettings: devices, plan and precision; common to trainers, generators and scorers.
struct ComputeSettings {
  std::string devices = "cpu:1";
  std::string parallel;   // pins; empty: the planner decides
  std::string plan_file;  // a plan to read instead of planning
  std::string plan_text;  // likewise, as text: a checkpoint's plan
  std::string profile;    // device profile: a file, "auto" or "none"; empty: the runtime's
  PlanPins pins;          // single decisions in addition to `parallel`
  int64_t memory_limit = 0;
  int64_t host_memory_limit = 0;  // sum over all ranks
  int64_t measure = 0;            // number of best predicted plans to measure; the fastest is used
  bool tune = false;              // times algorithms unknown to the profile, and adds them to it
  bool trace = false;             // records runs, and predicts them in the plan

  bool has_given_plan() const { return !plan_file.empty() || !plan_text.empty(); }
};

// Activations: the left operand of weight matmuls (ops.md, quantized_matmul): f32; rows rounded to 8 bits for
// quantized weights (kQ8); bf16 for bf16 weights (kBF16); or both (kRounded). kAuto: the fastest on the devices.
enum class Activations : uint8_t { kAuto, kF32, kQ8, kBF16, kRounded };
inline bool rounds_to_q8(Activations it) { return it == Activations::kQ8 || it == Activations::kRounded; }
inline bool rounds_to_bf16(Activations it) { return it == Activations::kBF16 || it == Activations::kRounded; }

// InferenceSettings: numerics and weight storage of generators and scorers.
struct InferenceSettings {
  DType precision = DType::kF32;  // of activations and caches
  bool tf32_matmuls = false;      // with f32
  std::optional<DType> weights;   // WeightStorage::matrices
  Activations activations = Activations::kAuto;
  bool repack = true;  // quantized weights are stored in the fastest kernels' layout
};

// `consumer` names the reader in messages.
ComputeSettings read_compute(OptionReader& reader);
InferenceSettings read_inference(OptionReader& reader, std::string_view consumer);
// Option 'weights', the storage type of matrices; nullopt: the model's.
std::optional<DType> read_kept_type(OptionReader& reader, std::string_view consumer);
// Option 'activations'; `otherwise`: the default.
Activations read_activations(OptionReader& reader, const std::string& otherwise);

// Suffix of messages about texts longer than the model's context.
inline constexpr std::string_view kLongerContext =
    "; a model with rotary positions reads longer texts where its file says so: rope_scaling of type yarn, or "
    "max_position_embeddings, in config.json";

// The remedy in a message about a text of `tokens` tokens that `context` does not hold; `longest`: the model's context, 0: unknown.
std::string remedy_for_length(int64_t tokens, int64_t context, int64_t longest);

// Tokens that a model reads at once: `given`, or for 0 the model's context (`longest`, 0: unknown), at most
// 2048. kInvalidArgument if they exceed the context; `what` begins the message: "generator: option 'context'".
Result<int64_t> tokens_at_once(int64_t given, int64_t longest, std::string_view what);

}  // namespace tessera
