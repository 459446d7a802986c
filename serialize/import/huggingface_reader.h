// HuggingfaceReader: reads config.json by a class's keys (graph/models/huggingface_keys.h). Keeps the first error, as JsonFields
// does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/models/huggingface_keys.h"
#include "serialize/import/huggingface_config.h"
#include "serialize/import/json_fields.h"

namespace tessera {

class HuggingfaceReader final : public HuggingfaceKeys {
 public:
  // `json` must outlive it.
  explicit HuggingfaceReader(const Json& config_json) : json(config_json), fields(json, "config.json") {}

  static constexpr int64_t kMostLayers = 1024;
  static constexpr int64_t kLongestWindow = int64_t{1} << 40;

  // ---- ForeignKeys
  const ModelConfig& values() const override { return out.config; }
  void fail(StatusCode code, std::string message) override { fields.fail(code, std::move(message)); }
  void size(std::string_view key, std::string_view ours, std::optional<int64_t> otherwise) override;
  void real(std::string_view key, std::string_view ours, std::optional<double> otherwise, KeyForm form) override;
  void flag(std::string_view key, std::string_view ours, bool otherwise) override;
  void size_or_zero(std::string_view key, std::string_view ours, int64_t otherwise) override;
  size_t choice(std::string_view key, std::initializer_list<std::string_view> texts, size_t index) override;

  // ---- HuggingfaceKeys
  void decoder(const HuggingfaceDefaults& defaults, const ActivationKey& activation) override;
  void rotation(const RotationKeys& keys) override;
  void rotations(const LayerRotationKeys& keys) override;
  void window(std::optional<int64_t> otherwise, bool one_kind) override;
  void windows_from_layer(int64_t window, int64_t layer) override;
  void optional_window(int64_t window) override;
  void alternating_windows(int64_t window, int64_t layer) override;
  void windows(const WindowKeys& keys) override;
  void recurrent(const RecurrentKeys& keys) override;
  void single_halves(std::string_view key, std::string_view pattern_key) override;
  void full_heads(const FullHeadKeys& keys) override;
  void double_widths(std::string_view key) override;
  void attention_bias() override;
  void head_size(int64_t size) override { size_("D") = size; }
  void optional_size(std::string_view key, std::string_view ours, int64_t otherwise) override;
  void negated_flag(std::string_view key, std::string_view ours, bool otherwise) override;
  void positive(std::string_view key, std::string_view ours, double otherwise, KeyForm form) override;
  void rotates_if(std::string_view key, std::string_view text) override;
  void head_width(std::string_view key, std::string_view expand_key, int64_t expand) override;
  void step_limits(std::string_view key) override;
  void adjusted_width() override;
  void renamed_size(std::string_view key, std::string_view ours) override;
  void renamed_flag(std::string_view key, std::string_view ours) override;
  void rope_layers(std::string_view key, std::string_view every_key, int64_t every) override;
  void score_scale(std::string_view key, double otherwise) override;
  void score_divisor(std::string_view key, double otherwise) override;
  void cap(std::string_view key, std::string_view ours, double otherwise) override;
  void router(std::string_view key, int64_t experts, int64_t used, double balance) override;
  void optional_experts(const OptionalExpertKeys& keys) override;
  void sparse_layers(int64_t expert_width) override;
  bool has_expert_layers() const override;
  void expert_width(std::string_view key, int64_t otherwise) override;
  void shared_experts(std::string_view key, int64_t otherwise) override;
  void dense_first(std::string_view key, int64_t otherwise) override;
  void expert_layer_types(std::string_view key) override;
  void draft_blocks(const DraftBlockKeys& keys) override;
  void states(std::string_view, double) override {}
  void states_size(std::string_view, int64_t) override {}
  void wants(std::string_view key, std::string_view value, std::string_view meaning) override;

  // ---- keys of all classes, read after those of one
  // is_causal: false makes a decoder bidirectional. Windows then extend to both sides and include the token at the window's
  // distance.
  void read_direction();
  // architectures: the saved class, which determines the head. `padding`: the class's pad_token_id, which
  // ...ForSequenceClassification skips.
  void read_class(std::optional<int64_t> padding);
  void read_end_ids();  // eos_token_id: one or several

  const Json& json;
  JsonFields fields;
  HuggingfaceConfig out;

 protected:
  ModelConfig* set_values() override { return &out.config; }

 private:
  int64_t& size_(const char* name) { return out.config.sizes[name]; }
  double& real_(const char* name) { return out.config.reals[name]; }
  bool& flag_(const char* name) { return out.config.flags[name]; }
  int64_t L() { return size_("L"); }
  double number(std::string_view key, std::optional<double> otherwise, KeyForm form);
  // Windows of layers named "sliding_attention" in layer_types, else of those that `has_window` selects.
  void read_windows(int64_t window, const std::function<bool(int64_t layer)>& has_window);
  bool has_window(size_t layer);
  // per_layer_config: sizes of single layers in place of those by kind. `sizes` and `counts`: of each layer.
  void read_layer_overrides(std::vector<int64_t>& sizes, std::vector<int64_t>& counts);
  void set_layers(const char* ours, std::vector<int64_t> values, int64_t common);  // unless all are `common`
  const Json* rope_object();  // rope_scaling unless empty, else rope_parameters; null: neither
  // Returns the object's theta, or `theta`. `is_global`: the rotation of rope_factors.
  double rotation_from(const Json& rope_json, double theta, std::string_view where, bool is_global, int64_t head_size);
  void check_longrope(JsonFields& rope, std::string& type) const;
  void scale_scores(const Json& rope);   // by mscale_all_dim
  void scale_queries(const Json& rope);  // by llama_4_scaling_beta

  double default_theta_ = 10000;
  RotationKeys rotation_;
};

// The settings of one kind of layers ("full_attention", "sliding_attention"): from rope_parameters, and if `is_scaled` from the
// older rope_scaling. An error is left in `fields` if rope_parameters has settings outside the kinds.
Json rotation_of_layers(JsonFields& fields, std::string_view kind, bool is_scaled, std::string_view model_type);

}  // namespace tessera
