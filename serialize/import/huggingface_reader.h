// HuggingfaceReader: a config.json while its class's reader (huggingface_classes.h)
// processes it. Has the parts common to classes. Keeps the first error, as JsonFields does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "serialize/import/huggingface_config.h"
#include "serialize/import/json_fields.h"

namespace tessera {

// HuggingfaceDefaults: defaults of a transformers class.
struct HuggingfaceDefaults {
  int64_t C, F, L, H, KV /* 0: H */, V, T;
  double norm_eps;
  double rope_theta = 10000;
  bool tied = false;
  int64_t D = 0;  // 0: C / H
};

class HuggingfaceReader {
 public:
  // `json` must outlive it.
  explicit HuggingfaceReader(const Json& config_json) : json(config_json), fields(json, "config.json") {}

  static constexpr int64_t kMostLayers = 1024;
  static constexpr int64_t kLongestWindow = int64_t{1} << 40;

  ModelConfig& config() { return out.config; }
  int64_t& size(const char* name) { return out.config.sizes[name]; }
  double& real(const char* name) { return out.config.reals[name]; }
  bool& flag(const char* name) { return out.config.flags[name]; }
  int64_t L() { return size("L"); }

  // Reads sizes, norm, head size, ties and activation, common to all decoders.
  void read_decoder(std::string_view family, const HuggingfaceDefaults& defaults,
                    std::string_view activation_key, std::string_view activation);
  // Reads one rotation for all layers.
  void read_rotation();
  // rope_scaling (older) unless empty, else rope_parameters; null: neither.
  const Json* rope_object();
  // Returns the object's theta, or `theta`. `is_global`: the rotation of rope_factors.
  double rotation_from(const Json& rope_json, double theta, std::string_view where, bool is_global);
  // Reads rotations per kind of layer: an object each in rope_parameters; the older rope_scaling
  // applies to layers without a window, and windowed layers use `local_theta` by default.
  void read_rotations(double local_theta);
  // Windows of layers named "sliding_attention" in layer_types, else of those selected by `has_window`.
  void read_windows(int64_t window, const std::function<bool(int64_t layer)>& has_window);
  // Reads one window for all layers, if any.
  void read_window(std::optional<int64_t> otherwise);
  // Qwen: windows from layer max_window_layers on, if use_sliding_window.
  void read_window_from_layer();
  void read_biases();
  void read_mlp_bias();
  // Newer files use num_local_experts, older ones of some classes num_experts.
  void read_router(int64_t experts, int64_t used);
  // Dense layers have width intermediate_size: those in mlp_only_layers, and
  // all except each decoder_sparse_step-th. Experts have moe_intermediate_size.
  void read_sparse_layers(int64_t expert_width);
  // Reads a positive number.
  double positive(const char* key, double otherwise);
  // 0 for null.
  double cap(const char* key, double otherwise);
  // is_causal: false makes a decoder bidirectional. Windows then extend
  // to both sides and include the token at the window's distance.
  void read_direction();
  // architectures: the saved class, which determines the head. `padding`:
  // the class's pad_token_id, which ...ForSequenceClassification skips.
  void read_class(std::optional<int64_t> padding);
  // eos_token_id: one or several.
  void read_end_ids();

  const Json& json;
  JsonFields fields;
  HuggingfaceConfig out;
  double default_theta = 10000;
  std::optional<double> original_context;  // for classes with one of their own
  std::optional<Json> default_rope;        // for classes that scale rotations by default
  int64_t rotated_part = 0;                // rotated numbers of a head; 0: all
  bool rotates_part = false;               // for classes that use partial_rotary_factor
};

// The settings of one kind of layers ("full_attention", "sliding_attention"):
// from rope_parameters, and if `is_scaled` from the older rope_scaling. An
// error is left in `fields` if rope_parameters has settings outside the kinds.
Json rotation_of_layers(JsonFields& fields, std::string_view kind, bool is_scaled, std::string_view model_type);

}  // namespace tessera
