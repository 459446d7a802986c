// HuggingfaceReader: config.json while the reader of its class (huggingface_classes.h) goes through it. The parts that
// classes share are here; the first error sticks, as in JsonFields.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "serialize/import/huggingface_config.h"
#include "serialize/import/json_fields.h"

namespace tessera {

// What a class of transformers has where config.json says nothing.
struct HuggingfaceDefaults {
  int64_t C, F, L, H, KV /* 0: H */, V, T;
  double norm_eps;
  double rope_theta = 10000;
  bool tied = false;
  int64_t D = 0;  // 0: C / H
};

class HuggingfaceReader {
 public:
  // `json` outlives it.
  explicit HuggingfaceReader(const Json& config_json) : json(config_json), fields(json, "config.json") {}

  static constexpr int64_t kMostLayers = 1024;
  static constexpr int64_t kLongestWindow = int64_t{1} << 40;

  ModelConfig& config() { return out.config; }
  int64_t& size(const char* name) { return out.config.sizes[name]; }
  double& real(const char* name) { return out.config.reals[name]; }
  bool& flag(const char* name) { return out.config.flags[name]; }
  int64_t L() { return size("L"); }

  // Sizes, norm, head size, ties, activation: what all decoders have.
  void read_decoder(std::string_view family, const HuggingfaceDefaults& defaults,
                    std::string_view activation_key, std::string_view activation);
  // One rotation for all layers.
  void read_rotation();
  // rope_parameters, or the older rope_scaling; null for neither.
  const Json* rope_object();
  // Returns theta. `is_global`: the rotation that the model's rope_factors are for.
  double rotation_from(const Json& rope_json, double theta, std::string_view where, bool is_global);
  // The rotation of layers without a window and that of layers with one, which rope_parameters may give apart; else
  // the latter turns by `local_theta` (0: as the others).
  void read_rotations(double local_theta);
  // Layers named "sliding_attention" in layer_types, else those that `has_window` says.
  void read_windows(int64_t window, const std::function<bool(int64_t layer)>& has_window);
  // The same window in every layer, where there is one.
  void read_window(std::optional<int64_t> otherwise);
  // Qwen's: windows from layer max_window_layers on, where use_sliding_window says so.
  void read_window_from_layer();
  void read_biases();
  void read_mlp_bias();
  // Newer files say num_local_experts, older ones of some classes num_experts.
  void read_router(int64_t experts, int64_t used);
  // Layers without experts, of the width intermediate_size: those of mlp_only_layers, and all but each
  // decoder_sparse_step-th. Experts have moe_intermediate_size.
  void read_sparse_layers(int64_t expert_width);
  // A number more than 0.
  double positive(const char* key, double otherwise);
  // 0 for null.
  double cap(const char* key, double otherwise);
  // eos_token_id: one or several.
  void read_end_ids();

  const Json& json;
  JsonFields fields;
  HuggingfaceConfig out;
  double default_theta = 10000;
  std::optional<double> original_context;  // of classes that have one of their own
  std::optional<Json> default_rope;        // of classes that scale rotations where config.json says nothing
  int64_t rotated_part = 0;                // numbers of a head that rotations are for; 0: all
};

}  // namespace tessera
