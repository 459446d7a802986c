#include "serialize/import/huggingface_config.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "serialize/import/huggingface_scaling.h"
#include "serialize/import/json_fields.h"

namespace tessera {
namespace {

constexpr int64_t kMostLayers = 1024;

// What a class of transformers has where config.json says nothing.
struct Defaults {
  int64_t C, F, L, H, KV /* 0: H */, V, T;
  double norm_eps;
  double rope_theta = 10000;
  bool tied = false;
  int64_t D = 0;  // 0: C / H
};

class ConfigReaderOfHuggingface {
 public:
  explicit ConfigReaderOfHuggingface(const Json& json) : json_(json), fields_(json, "config.json") {}

  Result<HuggingfaceConfig> run();

 private:
  struct Family {
    std::string_view model_type;
    void (ConfigReaderOfHuggingface::*read)();
  };
  static std::span<const Family> families();

  int64_t& size(const char* name) { return out_.config.sizes[name]; }
  double& real(const char* name) { return out_.config.reals[name]; }
  bool& flag(const char* name) { return out_.config.flags[name]; }
  int64_t L() { return size("L"); }

  // Sizes, norm, head size, ties, activation: what all decoders have.
  void read_decoder(std::string_view family, const Defaults& defaults, std::string_view activation_key,
                    std::string_view activation) {
    out_.config.family = family;
    size("C") = fields_.size("hidden_size", defaults.C);
    size("L") = fields_.integer("num_hidden_layers", defaults.L, 1, kMostLayers);
    size("H") = fields_.size("num_attention_heads", defaults.H);
    size("KV") = fields_.size("num_key_value_heads", defaults.KV == 0 ? size("H") : defaults.KV);
    // A class without a default divides, and so do files that say null.
    size("D") =
        fields_.size("head_dim", defaults.D > 0 ? defaults.D : std::max<int64_t>(1, size("C") / size("H")));
    size("F") = fields_.size("intermediate_size", defaults.F);
    size("V") = fields_.size("vocab_size", defaults.V);
    size("T") = fields_.size("max_position_embeddings", defaults.T);
    real("norm_eps") = fields_.real("rms_norm_eps", defaults.norm_eps);
    flag("tied") = fields_.flag("tie_word_embeddings", defaults.tied);
    flag("rope_half") = true;
    const std::string found = fields_.text(activation_key, std::string(activation));
    if (found != activation && !(activation == "silu" && found == "swish"))
      fields_.fail(StatusCode::kUnsupported, format("{} is '{}'; only a {} model with '{}' can be imported",
                                                    activation_key, found, family, activation));
    default_theta_ = defaults.rope_theta;
  }

  // One rotation for all layers.
  void read_rotation() {
    const Json* given = rope_object();
    Json empty = Json::object();
    rotation_from(given ? *given : empty, default_theta_, "rope_parameters", true);
  }

  // rope_parameters, or the older rope_scaling; null for neither.
  const Json* rope_object() {
    const Json* scaling = fields_.object("rope_scaling");
    const Json* parameters = fields_.object("rope_parameters");
    return scaling ? scaling : parameters;
  }

  // `is_global`: the rotation that the model's rope_factors are for.
  double rotation_from(const Json& json, double theta, std::string_view where, bool is_global) {
    JsonFields rope(json, format("config.json: {}", where));
    const double outer = fields_.real("rope_theta", theta);
    Rotation rotation{rope.real("rope_theta", is_global ? outer : theta), size("D")};
    const double partial = rope.real("partial_rotary_factor", fields_.real("partial_rotary_factor", 1.0));
    if (!(partial > 0 && partial <= 1))
      rope.fail(StatusCode::kCorrupt,
                format("partial_rotary_factor is {}, wanted more than 0, at most 1", partial));
    rotation.rotated = static_cast<int64_t>(static_cast<double>(size("D")) * partial);
    if (rotation.rotated < 2 || rotation.rotated % 2 != 0 || !(rotation.theta > 0))
      rope.fail(StatusCode::kCorrupt, format("{} numbers of a head are rotated with rope_theta {}, wanted an "
                                             "even number and a positive base",
                                             rotation.rotated, rotation.theta));
    std::string type = rope.text("rope_type", rope.text("type", "default"));
    // The class of phi3 takes "yarn" for its own longrope.
    if (type == "su" || (type == "yarn" && out_.config.family == "phi3")) type = "longrope";
    if (rope.status().ok() && fields_.status().ok() && is_global) {
      real("rope_theta") = rotation.theta;
      if (rotation.rotated != size("D")) size("R") = rotation.rotated;
      const auto T = static_cast<double>(size("T"));
      const double inner = rope.real("original_max_position_embeddings", original_context_.value_or(T));
      const double original =
          fields_.real("original_max_position_embeddings", original_context_.value_or(inner));
      out_.scaling = read_huggingface_scaling(rope, type, rotation, {size("T"), original});
      if (out_.scaling) out_.scaling->describe(out_.config);
    } else if (rope.status().ok() && type != "default") {
      rope.fail(StatusCode::kUnsupported,
                format("rope_type is '{}'; layers with a window want 'default'", type));
    }
    if (!rope.status().ok()) fields_.fail(rope.status().code(), std::string(rope.status().message()));
    return rotation.theta;
  }

  // Layers named "sliding_attention" in layer_types, else those that `has_window` says, see `window` keys.
  template <class HasWindow>
  void read_windows(int64_t window, const HasWindow& has_window) {
    const std::vector<std::string> types = fields_.texts("layer_types", static_cast<size_t>(kMostLayers));
    std::vector<int64_t> windows(static_cast<size_t>(L()), 0);
    if (!types.empty() && types.size() != windows.size())
      fields_.fail(StatusCode::kCorrupt,
                   format("layer_types has {} names, the model has {} layers", types.size(), L()));
    if (!fields_.status().ok()) return;
    for (size_t i = 0; i < windows.size(); ++i) {
      bool local = has_window(static_cast<int64_t>(i));
      if (!types.empty()) {
        local = types[i] == "sliding_attention";
        if (!local && types[i] != "full_attention")
          fields_.fail(StatusCode::kUnsupported,
                       format("layer_types has '{}'; known: full_attention, sliding_attention", types[i]));
      }
      if (local) windows[i] = window;
    }
    if (std::ranges::any_of(windows, [](int64_t each) { return each > 0; }))
      out_.config.lists["windows"] = windows;
  }

  // The same window in every layer, where there is one.
  void read_window(std::optional<int64_t> otherwise) {
    // null is none, which an absent key is only where the class says so.
    const bool is_null = json_.contains("sliding_window") && json_["sliding_window"].is_null();
    const int64_t window =
        is_null ? 0 : fields_.integer("sliding_window", otherwise.value_or(0), 0, int64_t{1} << 40);
    if (window > 0 && window < size("T")) size("window") = window;
  }

  // Qwen's: windows from layer max_window_layers on, where use_sliding_window says so.
  void read_window_from_layer() {
    const bool uses = fields_.flag("use_sliding_window", false);
    const int64_t window = fields_.integer("sliding_window", 4096, 0, int64_t{1} << 40);
    const int64_t from = fields_.integer("max_window_layers", 28, 0, int64_t{1} << 31);
    read_windows(uses && window < size("T") ? window : 0, [&](int64_t i) { return uses && i >= from; });
  }

  void read_biases() {
    const bool biased = fields_.flag("attention_bias", false);
    if (biased) flag("qkv_bias") = flag("o_bias") = true;
  }
  void read_mlp_bias() {
    if (fields_.flag("mlp_bias", false)) flag("mlp_bias") = true;
  }

  // Newer files say num_local_experts, older ones of some classes num_experts.
  void read_router(int64_t experts, int64_t used) {
    size("E") = fields_.size("num_local_experts", fields_.size("num_experts", experts));
    size("K") = fields_.size("num_experts_per_tok", used);
    real("capacity") = 0;  // none is dropped
    real("aux") = fields_.real("router_aux_loss_coef", 0.001);
  }

  void read_llama() {
    read_decoder("llama",
                 {.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 32000, .T = 2048, .norm_eps = 1e-6},
                 "hidden_act", "silu");
    read_rotation();
    read_biases();
    read_mlp_bias();
  }

  void read_mistral() {
    read_decoder(
        "llama",
        {.C = 4096, .F = 14336, .L = 32, .H = 32, .KV = 8, .V = 32000, .T = 131072, .norm_eps = 1e-6},
        "hidden_act", "silu");
    read_rotation();
    read_window(4096);
  }

  void read_mixtral() {
    read_decoder("moe",
                 {.C = 4096,
                  .F = 14336,
                  .L = 32,
                  .H = 32,
                  .KV = 8,
                  .V = 32000,
                  .T = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6},
                 "hidden_act", "silu");
    read_rotation();
    read_window({});
    read_router(8, 2);
  }

  void read_qwen2() {
    read_decoder(
        "qwen2",
        {.C = 4096, .F = 22016, .L = 32, .H = 32, .KV = 32, .V = 151936, .T = 32768, .norm_eps = 1e-6},
        "hidden_act", "silu");
    read_rotation();
    read_window_from_layer();
  }

  void read_qwen3() {
    read_decoder("qwen3",
                 {.C = 4096,
                  .F = 22016,
                  .L = 32,
                  .H = 32,
                  .KV = 32,
                  .V = 151936,
                  .T = 32768,
                  .norm_eps = 1e-6,
                  .D = 128},
                 "hidden_act", "silu");
    read_rotation();
    read_window_from_layer();
    read_biases();
  }

  void read_qwen3_moe() {
    read_decoder("qwen3moe",
                 {.C = 2048, .F = 6144, .L = 24, .H = 32, .KV = 4, .V = 151936, .T = 32768, .norm_eps = 1e-6},
                 "hidden_act", "silu");
    read_rotation();
    const bool uses = fields_.flag("use_sliding_window", false);
    if (uses) read_window(4096);
    read_biases();
    read_router(128, 8);
    size("F") = fields_.size("moe_intermediate_size", 768);
    flag("normalize") = fields_.flag("norm_topk_prob", false);
    fields_.wants("decoder_sparse_step", 1, "every layer has experts");
    if (const Json* dense = fields_.any("mlp_only_layers"); dense && !(dense->is_array() && dense->empty()))
      fields_.fail(StatusCode::kUnsupported,
                   format("mlp_only_layers is {}; only models whose layers all have experts "
                          "can be imported",
                          quote_json(*dense, 60)));
  }

  void read_gemma(std::string_view family, const Defaults& defaults, double softcap, double logit_softcap) {
    const bool is_old =
        !json_.contains("hidden_activation") && json_.contains("hidden_act") && family != "gemma3";
    read_decoder(family, defaults, is_old ? "hidden_act" : "hidden_activation", "gelu_pytorch_tanh");
    read_biases();
    fields_.wants("use_bidirectional_attention", false, "causal attention");
    const double scalar = fields_.real("query_pre_attn_scalar", 256.0);
    if (!(scalar > 0))
      fields_.fail(StatusCode::kCorrupt, format("query_pre_attn_scalar is {}, wanted more than 0", scalar));
    if (scalar != static_cast<double>(size("D"))) real("attention_scale") = 1 / std::sqrt(scalar);
    softcap = cap("attn_logit_softcapping", softcap);
    logit_softcap = cap("final_logit_softcapping", logit_softcap);
    if (softcap != 0) real("softcap") = softcap;
    if (logit_softcap != 0) real("logit_softcap") = logit_softcap;
  }
  double cap(const char* key, double otherwise) {
    if (json_.contains(key) && json_[key].is_null()) return 0;
    return fields_.real(key, otherwise);
  }

  void read_gemma2() {
    read_gemma("gemma2",
               {.C = 2304,
                .F = 9216,
                .L = 26,
                .H = 8,
                .KV = 4,
                .V = 256000,
                .T = 8192,
                .norm_eps = 1e-6,
                .tied = true,
                .D = 256},
               50, 30);
    read_rotation();
    read_windows(fields_.integer("sliding_window", 4096, 1, int64_t{1} << 40),
                 [](int64_t i) { return i % 2 == 0; });
  }

  void read_gemma3() {
    read_gemma("gemma3",
               {.C = 2304,
                .F = 9216,
                .L = 26,
                .H = 8,
                .KV = 4,
                .V = 262208,
                .T = 131072,
                .norm_eps = 1e-6,
                .rope_theta = 1e6,
                .tied = true,
                .D = 256},
               0, 0);
    const int64_t every = fields_.integer("sliding_window_pattern", 6, 1, int64_t{1} << 31);
    read_windows(fields_.integer("sliding_window", 4096, 1, int64_t{1} << 40),
                 [&](int64_t i) { return (i + 1) % every != 0; });
    // Newer files have a rotation for each kind of layer, older ones a base for the local ones.
    real("window_theta") = fields_.real("rope_local_base_freq", 10000.0);
    const Json empty = Json::object();
    const Json* rope = rope_object();
    if (rope && (rope->contains("full_attention") || rope->contains("sliding_attention"))) {
      const auto part = [&](const char* kind) -> const Json& {
        const auto at = rope->find(kind);
        return at == rope->end() || !at->is_object() ? empty : *at;
      };
      rotation_from(part("full_attention"), default_theta_, "rope_parameters: full_attention", true);
      real("window_theta") = rotation_from(part("sliding_attention"), real("window_theta"),
                                           "rope_parameters: sliding_attention", false);
    } else {
      rotation_from(rope ? *rope : empty, default_theta_, "rope_scaling", true);
    }
  }

  void read_phi3() {
    read_decoder("phi3",
                 {.C = 3072, .F = 8192, .L = 32, .H = 32, .KV = 0, .V = 32064, .T = 4096, .norm_eps = 1e-5},
                 "hidden_act", "silu");
    original_context_ = 4096;
    read_rotation();
    read_window({});
  }

  void read_smollm3() {
    read_decoder("smollm3",
                 {.C = 2048,
                  .F = 11008,
                  .L = 36,
                  .H = 16,
                  .KV = 4,
                  .V = 128256,
                  .T = 32768,
                  .norm_eps = 1e-6,
                  .rope_theta = 2e6,
                  .tied = true},
                 "hidden_act", "silu");
    read_rotation();
    read_biases();
    read_mlp_bias();
    const int64_t every = fields_.integer("no_rope_layer_interval", 4, 1, int64_t{1} << 31);
    std::vector<int64_t> turned;
    const std::vector<double> given = fields_.reals("no_rope_layers", static_cast<size_t>(kMostLayers));
    if (!given.empty() && static_cast<int64_t>(given.size()) != L())
      fields_.fail(StatusCode::kCorrupt,
                   format("no_rope_layers has {} numbers, the model has {} layers", given.size(), L()));
    if (!fields_.status().ok()) return;
    for (int64_t i = 0; i < L(); ++i)
      turned.push_back(given.empty() ? (i + 1) % every != 0 : given[static_cast<size_t>(i)] != 0);
    out_.config.lists["rope_layers"] = turned;
    const bool uses = fields_.flag("use_sliding_window", false);
    const int64_t window = fields_.integer("sliding_window", 0, 0, int64_t{1} << 40);
    read_windows(window,
                 [&](int64_t i) { return uses && window > 0 && turned[static_cast<size_t>(i)] == 0; });
  }

  void read_gpt2() {
    out_.config.family = "gpt2";
    size("C") = fields_.size("n_embd", 768);
    size("L") = fields_.integer("n_layer", 12, 1, kMostLayers);
    size("H") = fields_.size("n_head", 12);
    size("F") = fields_.size("n_inner", 4 * size("C"));
    size("V") = fields_.size("vocab_size", 50257);
    size("T") = fields_.size("n_positions", 1024);
    real("norm_eps") = fields_.real("layer_norm_epsilon", 1e-5);
    flag("tied") = fields_.flag("tie_word_embeddings", true);
    const std::string activation = fields_.text("activation_function", "gelu_new");
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu_fast")
      fields_.fail(StatusCode::kUnsupported,
                   format("activation_function is '{}'; only a gpt2 model with 'gelu_new' can be imported",
                          activation));
    fields_.wants("scale_attn_weights", true, "scores times 1/sqrt(D)");
    fields_.wants("scale_attn_by_inverse_layer_idx", false, "scores alike in every layer");
    fields_.wants("add_cross_attention", false, "no encoder beside it");
  }

  void read_end_ids() {
    const Json* ids = fields_.any("eos_token_id");
    if (ids == nullptr) return;
    const Json list = ids->is_array() ? *ids : Json::array({*ids});
    for (const Json& id : list) {
      if (!id.is_number_integer() || list.size() > 256 || id.get<int64_t>() < 0 ||
          id.get<int64_t>() >= (int64_t{1} << 31)) {
        fields_.fail(StatusCode::kCorrupt,
                     format("eos_token_id is {}, wanted a token or several", quote_json(*ids, 60)));
        return;
      }
      out_.end_ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
    }
  }

  const Json& json_;
  JsonFields fields_;
  HuggingfaceConfig out_;
  double default_theta_ = 10000;
  std::optional<double> original_context_;  // of classes that have one of their own
};

std::span<const ConfigReaderOfHuggingface::Family> ConfigReaderOfHuggingface::families() {
  using It = ConfigReaderOfHuggingface;
  static constexpr Family kFamilies[] = {
      {"gemma2", &It::read_gemma2},       {"gemma3_text", &It::read_gemma3}, {"gpt2", &It::read_gpt2},
      {"llama", &It::read_llama},         {"mistral", &It::read_mistral},    {"mixtral", &It::read_mixtral},
      {"phi3", &It::read_phi3},           {"qwen2", &It::read_qwen2},        {"qwen3", &It::read_qwen3},
      {"qwen3_moe", &It::read_qwen3_moe}, {"smollm3", &It::read_smollm3},
  };
  return kFamilies;
}

Result<HuggingfaceConfig> ConfigReaderOfHuggingface::run() {
  if (!json_.is_object())
    return Status(StatusCode::kCorrupt, format("config.json is {}, wanted an object", quote_json(json_, 60)));
  out_.model_type = fields_.text("model_type");
  TSR_RETURN_IF_ERROR(fields_.status());
  const auto family = std::ranges::find(families(), std::string_view(out_.model_type), &Family::model_type);
  if (family == families().end()) {
    std::vector<std::string> known;
    for (const Family& each : families()) known.emplace_back(each.model_type);
    return Status(StatusCode::kUnsupported,
                  format("config.json: model_type is '{}'; known: {}", out_.model_type, join(known, ", ")));
  }
  if (const Json* method = fields_.any("quantization_config"))
    fields_.fail(
        StatusCode::kUnsupported,
        format("quantization_config is {}; only weights that are not quantised can be imported from a folder",
               quote_json(*method, 80)));
  (this->*family->read)();
  read_end_ids();
  TSR_RETURN_IF_ERROR(fields_.status());
  out_.used = fields_.used();
  out_.unused = fields_.unused();
  return std::move(out_);
}

}  // namespace

Result<HuggingfaceConfig> read_huggingface_config(const Json& json) {
  return ConfigReaderOfHuggingface(json).run();
}

}  // namespace tessera
