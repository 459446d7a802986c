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
  // The older rope_scaling unless it is empty, else rope_parameters; null for neither.
  const Json* rope_object();
  // Returns theta: that of the object, else `theta`. `is_global`: the rotation that the model's rope_factors are for.
  double rotation_from(const Json& rope_json, double theta, std::string_view where, bool is_global);
  // The rotations of classes with one for each kind of layers: rope_parameters has an object of each, and the older
  // rope_scaling is of layers without a window. Those with one turn by `local_theta` where nothing else is said.
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
  // is_causal: false is attention in both directions, of any decoder. Windows are then on either side, and include the
  // token that is as far away as they are wide.
  void read_direction();
  // architectures: the class that saved a decoder, and so its head. `padding`: the class's own pad_token_id, which
  // …ForSequenceClassification reads no classes at.
  void read_class(std::optional<int64_t> padding);
  // eos_token_id: one or several.
  void read_end_ids();

  const Json& json;
  JsonFields fields;
  HuggingfaceConfig out;
  double default_theta = 10000;
  std::optional<double> original_context;  // of classes that have one of their own
  std::optional<Json> default_rope;        // of classes that scale rotations where config.json says nothing
  int64_t rotated_part = 0;                // numbers of a head that rotations are for; 0: all
  bool rotates_part = false;               // of classes that obey partial_rotary_factor
};

// The settings of one kind of layers ("full_attention", "sliding_attention") in classes that tell kinds apart: those in
// rope_parameters, and where `is_scaled` those of the older rope_scaling. An error stays in `fields` where rope_parameters
// has settings outside the kinds.
Json rotation_of_layers(JsonFields& fields, std::string_view kind, bool is_scaled, std::string_view model_type);

}  // namespace tessera
