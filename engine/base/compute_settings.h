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

// InferenceSettings: what generators and scorers compute in, and how they keep weights.
struct InferenceSettings {
  DType precision = DType::kF32;  // of activations and caches
  bool tf32_matmuls = false;      // with f32
  std::optional<DType> weights;   // WeightStorage::matrices
  Activations activations = Activations::kAuto;
  bool repack = true;  // weights of block types are kept as the fastest kernels read them
};

// `consumer` names the reader in messages.
ComputeSettings read_compute(OptionReader& reader);
InferenceSettings read_inference(OptionReader& reader, std::string_view consumer);
// Option 'weights', the type in which matrices are kept; none: as the model has them.
std::optional<DType> read_kept_type(OptionReader& reader, std::string_view consumer);
// Option 'activations'; `otherwise` without it.
Activations read_activations(OptionReader& reader, const std::string& otherwise);

// The end of messages about texts that are longer than the model's context.
inline constexpr std::string_view kLongerContext =
    "; a model with rotary positions reads longer texts where its file says so: rope_scaling of type yarn, or "
    "max_position_embeddings, in config.json";

// The remedy in a message about a text of `tokens` tokens that `context` does not hold; `longest`: the model's context, 0: unknown.
std::string remedy_for_length(int64_t tokens, int64_t context, int64_t longest);

// Tokens that a model reads at once: those that are given or, for 0, the model's context (`longest`, 0: unknown), at most
// 2048. kInvalidArgument when they exceed it; `what` begins the message: "generator: option 'context'".
Result<int64_t> tokens_at_once(int64_t given, int64_t longest, std::string_view what);

}  // namespace tessera
