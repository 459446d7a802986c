// HuggingfaceKeys: config.json of a transformers class. A class's function names its keys, in reading and in writing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "graph/models/foreign_keys.h"

namespace tessera {

// Values of a class where its keys are absent.
struct HuggingfaceDefaults {
  int64_t C, F, L, H, KV /* 0: H */, V, T;
  double norm_eps;
  double rope_theta = 10000;
  bool tied = false;
  int64_t D = 0;  // 0: C / H
  std::string_view norm_key = "rms_norm_eps";
};

// The name of an activation; some classes mean the same by a second name. Without a key the class has one activation.
struct ActivationKey {
  std::string_view key = "hidden_act", name = "silu", also = "swish";
};

// A class's rotations, in rope_parameters or the older rope_theta and rope_scaling.
struct RotationKeys {
  std::optional<double> original_context = {};  // for classes with one of their own
  std::string_view scaling = {};                // JSON: the scaling where the file has none
  std::string_view rotated = {};                // our size: rotated elements of a head; empty: partial_rotary_factor, or all
  bool rotates_part = false;               // reads partial_rotary_factor
  double part = 1;                         // where it is absent
  bool only_longrope = false;              // knows longrope alone, also by the names su and yarn
  bool scales_scores = false;              // mscale_all_dim scales scores (DeepSeek)
  bool scales_queries = false;             // llama_4_scaling_beta, with steps of the original context (Ministral 3)
};

// The rotations of layers with windows and of the others.
struct LayerRotationKeys {
  double local_theta = 10000;
  std::string_view local_key = {};  // older files: the key of local_theta
  std::string_view scaling = {};    // JSON: the scaling of layers without windows where the file has no rope_parameters
  bool by_full_head = false;        // these layers have heads of another size (FullHeadKeys)
};

// Heads of layers without windows.
struct FullHeadKeys {
  std::string_view size;
  int64_t otherwise;
  std::string_view count;       // heads of keys and values, read with `are_values`
  std::string_view are_values;  // a flag: values are the keys' projection
};

// Keys of experts beside a dense MLP; the width of the MLP is intermediate_size.
struct OptionalExpertKeys {
  std::string_view enabled, count, used, width;
};

// The windows of layers. layer_types of the file take precedence over the class's pattern.
struct WindowKeys {
  int64_t otherwise = 0;            // sliding_window where the key is absent; 0: none
  bool must_have = false;           // without windows the writer states one of the whole context
  int64_t every = 0;                // each `every`th layer has none
  std::string_view every_key = {};  // states `every`
  std::string_view layers_without = {};  // our list: layers with 0 there have windows, if use_sliding_window
  // The JSON of use_bidirectional_attention that makes attention see both directions, and halves windows; empty: the class has no
  // such key. Readers take true and "all" alike.
  std::string_view both_directions = {};
  bool last_is_full = false;        // whatever layer_types says
};

// The recurrent layers. layer_types of the file take precedence over the class's pattern.
struct RecurrentKeys {
  std::string_view type = "linear_attention";  // their name in layer_types
  std::string_view also = {};                  // another
  std::string_view every_key = {};             // each so manyth layer has attention
  int64_t every = 0;                           // where the key is absent; 0: no layer has
  std::string_view attention_layers = {};      // lists the layers with attention; absent: all
  bool wants_types = false;                    // files without layer_types are refused
};

// Blocks after the model's that predict further tokens. One is read, where the file has its tensors; several are skipped.
struct DraftBlockKeys {
  std::string_view key;         // their number
  int64_t otherwise = 0;        // where the key is absent
  std::string_view beginning = {};   // of their tensors' names; empty: that of the layers after the last
  std::string_view tables_key = {};  // a flag: they have an embedding and a head of their own
};

class HuggingfaceKeys : public ForeignKeys {
 public:
  using ForeignKeys::real;

  // Sizes, norm, ties and activation, common to all decoders.
  virtual void decoder(const HuggingfaceDefaults& defaults, const ActivationKey& activation = {}) = 0;
  virtual void rotation(const RotationKeys& keys = {}) = 0;
  virtual void rotations(const LayerRotationKeys& keys) = 0;  // after windows and full_heads
  // One window for all layers; `otherwise` where the key is absent, null means none. `one_kind`: layer_types must agree.
  virtual void window(std::optional<int64_t> otherwise, bool one_kind = false) = 0;
  // Qwen: use_sliding_window, and windows from layer max_window_layers on.
  virtual void windows_from_layer(int64_t window, int64_t layer) = 0;
  // One window for all layers, if use_sliding_window.
  virtual void optional_window(int64_t window) = 0;
  // Qwen2-MoE: windows in every other layer before max_window_layers, if use_sliding_window.
  virtual void alternating_windows(int64_t window, int64_t layer) = 0;
  virtual void windows(const WindowKeys& keys) = 0;
  virtual void recurrent(const RecurrentKeys& keys) = 0;
  // Layers of one half each, by names or by letters (`pattern_key`), which also number the layers.
  virtual void single_halves(std::string_view key, std::string_view pattern_key) = 0;
  virtual void full_heads(const FullHeadKeys& keys) = 0;  // after windows
  // A flag: layers that read keys and values of others (shared_kv) are twice as wide.
  virtual void double_widths(std::string_view key) = 0;
  virtual void attention_bias() = 0;  // at q, k, v and o
  virtual void head_size(int64_t size) = 0;  // in place of head_dim
  // Null: none.
  virtual void optional_size(std::string_view key, std::string_view ours, int64_t otherwise) = 0;
  virtual void negated_flag(std::string_view key, std::string_view ours, bool otherwise) = 0;
  virtual void positive(std::string_view key, std::string_view ours, double otherwise, KeyForm form = KeyForm::kSame) = 0;
  // All layers rotate where the key has this text, else none.
  virtual void rotates_if(std::string_view key, std::string_view text) = 0;
  // The width of a head of values; "auto": the model's width times that of `expand_key`, shared by the heads.
  virtual void head_width(std::string_view key, std::string_view expand_key, int64_t expand) = 0;
  // The least and the most step of a state space, infinite where there is no bound.
  virtual void step_limits(std::string_view key) = 0;
  // LFM2: block_auto_adjust_ff_dim makes F of two thirds of the given width, times a factor, rounded up to a multiple.
  virtual void adjusted_width() = 0;
  // A second name of a key that was read: it counts, if the file has it.
  virtual void renamed_size(std::string_view key, std::string_view ours) = 0;
  virtual void renamed_flag(std::string_view key, std::string_view ours) = 0;
  // Which layers rotate: a list, or all but each `every`th.
  virtual void rope_layers(std::string_view key, std::string_view every_key, int64_t every) = 0;
  // Granite's attention_multiplier: the factor of scores.
  virtual void score_scale(std::string_view key, double otherwise) = 0;
  // Gemma's query_pre_attn_scalar: scores are divided by its root.
  virtual void score_divisor(std::string_view key, double otherwise) = 0;
  // A bound; null and 0: none.
  virtual void cap(std::string_view key, std::string_view ours, double otherwise) = 0;
  // Experts, and experts of a token. `key` is written; num_local_experts and num_experts are read. `balance`: the factor of
  // the balance loss where the file has no router_aux_loss_coef.
  virtual void router(std::string_view key, int64_t experts, int64_t used, double balance = 0.001) = 0;
  virtual void optional_experts(const OptionalExpertKeys& keys) = 0;
  // Qwen: layers without experts by mlp_only_layers and decoder_sparse_step.
  virtual void sparse_layers(int64_t expert_width) = 0;
  // Whether a layer has experts, by a list that was read.
  virtual bool has_expert_layers() const = 0;
  // The width of one expert; intermediate_size is that of dense layers.
  virtual void expert_width(std::string_view key, int64_t otherwise) = 0;
  // The number of shared experts, each of the width of one.
  virtual void shared_experts(std::string_view key, int64_t otherwise) = 0;
  // DeepSeek: the first layers are dense.
  virtual void dense_first(std::string_view key, int64_t otherwise) = 0;
  // Layers "dense" or "sparse"; without the key the first is dense.
  virtual void expert_layer_types(std::string_view key) = 0;
  virtual void draft_blocks(const DraftBlockKeys& keys) = 0;
  // A key that writers add, and readers ignore.
  virtual void states(std::string_view key, double value) = 0;
  virtual void states_size(std::string_view key, int64_t value) = 0;
  // The key has this value, the default of the class, or the file is refused. `value`: JSON.
  virtual void wants(std::string_view key, std::string_view value, std::string_view meaning) = 0;
};

// A class of transformers that a family reads and writes.
struct HuggingfaceClass {
  std::string_view model_type;    // "qwen3"
  std::string_view architecture;  // with its head over the vocabulary: "Qwen3ForCausalLM"; empty: it is only read
  void (*keys)(HuggingfaceKeys& k);
  std::optional<int64_t> padding = {};  // pad_token_id of the class
  std::string_view base = {};           // begins the names of its other heads; empty: that of `architecture`
  std::optional<bool> has_experts = {};  // num_local_experts is above 0, or it is not: two families share a model_type
};

}  // namespace tessera
