#include "serialize/import/huggingface_reader.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "serialize/import/huggingface_scaling.h"

namespace tessera {

void HuggingfaceReader::read_decoder(std::string_view family, const HuggingfaceDefaults& defaults,
                                     std::string_view activation_key, std::string_view activation) {
  out.config.family = family;
  size("C") = fields.size("hidden_size", defaults.C);
  size("L") = fields.integer("num_hidden_layers", defaults.L, 1, kMostLayers);
  size("H") = fields.size("num_attention_heads", defaults.H);
  size("KV") = fields.size("num_key_value_heads", defaults.KV == 0 ? size("H") : defaults.KV);
  // A class without a default divides, and so do files that say null.
  size("D") =
      fields.size("head_dim", defaults.D > 0 ? defaults.D : std::max<int64_t>(1, size("C") / size("H")));
  size("F") = fields.size("intermediate_size", defaults.F);
  size("V") = fields.size("vocab_size", defaults.V);
  size("T") = fields.size("max_position_embeddings", defaults.T);
  real("norm_eps") = fields.real("rms_norm_eps", defaults.norm_eps);
  flag("tied") = fields.flag("tie_word_embeddings", defaults.tied);
  flag("rope_half") = true;
  const std::string found = fields.text(activation_key, std::string(activation));
  if (found != activation && !(activation == "silu" && found == "swish"))
    fields.fail(StatusCode::kUnsupported, format("{} is '{}'; only a {} model with '{}' can be imported",
                                                 activation_key, found, family, activation));
  default_theta = defaults.rope_theta;
}

void HuggingfaceReader::read_rotation() {
  const Json* given = rope_object();
  const Json otherwise = default_rope.value_or(Json::object());
  rotation_from(given ? *given : otherwise, default_theta, "rope_parameters", true);
}

const Json* HuggingfaceReader::rope_object() {
  const Json* scaling = fields.object("rope_scaling");
  const Json* parameters = fields.object("rope_parameters");
  return scaling ? scaling : parameters;
}

double HuggingfaceReader::rotation_from(const Json& rope_json, double theta, std::string_view where,
                                        bool is_global) {
  JsonFields rope(rope_json, format("config.json: {}", where));
  const double outer = fields.real("rope_theta", theta);
  const int64_t whole = rotated_part > 0 ? rotated_part : size("D");
  Rotation rotation{rope.real("rope_theta", is_global ? outer : theta), whole};
  const double partial = rope.real("partial_rotary_factor", fields.real("partial_rotary_factor", 1.0));
  if (!(partial > 0 && partial <= 1))
    rope.fail(StatusCode::kCorrupt,
              format("partial_rotary_factor is {}, wanted more than 0, at most 1", partial));
  rotation.rotated = static_cast<int64_t>(static_cast<double>(whole) * partial);
  if (rotation.rotated < 2 || rotation.rotated % 2 != 0 || rotation.rotated > kMostRotated ||
      !(rotation.theta > 0))
    rope.fail(StatusCode::kCorrupt, format("{} numbers of a head are rotated with rope_theta {}, wanted an "
                                           "even number of at most {} and a positive base",
                                           rotation.rotated, rotation.theta, kMostRotated));
  std::string type = rope.text("rope_type", rope.text("type", "default"));
  // The class of phi3 takes "yarn" for its own longrope.
  if (type == "su" || (type == "yarn" && out.config.family == "phi3")) type = "longrope";
  if (rope.status().ok() && fields.status().ok() && is_global) {
    real("rope_theta") = rotation.theta;
    if (rotation.rotated != size("D")) size("R") = rotation.rotated;
    const auto T = static_cast<double>(size("T"));
    const double inner = rope.real("original_max_position_embeddings", original_context.value_or(T));
    const double original = fields.real("original_max_position_embeddings", original_context.value_or(inner));
    out.scaling = read_huggingface_scaling(rope, type, rotation, {size("T"), original});
    if (out.scaling) out.scaling->describe(out.config);
  } else if (rope.status().ok() && type != "default") {
    rope.fail(StatusCode::kUnsupported,
              format("rope_type is '{}'; layers with a window want 'default'", type));
  }
  if (!rope.status().ok()) fields.fail(rope.status().code(), std::string(rope.status().message()));
  return rotation.theta;
}

void HuggingfaceReader::read_rotations(double local_theta) {
  if (local_theta > 0) real("window_theta") = local_theta;
  const Json empty = Json::object();
  const Json* rope = rope_object();
  if (rope && (rope->contains("full_attention") || rope->contains("sliding_attention"))) {
    const auto part = [&](const char* kind) -> const Json& {
      const auto at = rope->find(kind);
      return at == rope->end() || !at->is_object() ? empty : *at;
    };
    rotation_from(part("full_attention"), default_theta, "rope_parameters: full_attention", true);
    real("window_theta") =
        rotation_from(part("sliding_attention"), local_theta > 0 ? local_theta : default_theta,
                      "rope_parameters: sliding_attention", false);
  } else {
    rotation_from(rope ? *rope : empty, default_theta, "rope_scaling", true);
  }
}

void HuggingfaceReader::read_windows(int64_t window, const std::function<bool(int64_t layer)>& has_window) {
  const std::vector<std::string> types = fields.texts("layer_types", static_cast<size_t>(kMostLayers));
  std::vector<int64_t> windows(static_cast<size_t>(L()), 0);
  if (!types.empty() && types.size() != windows.size())
    fields.fail(StatusCode::kCorrupt,
                format("layer_types has {} names, the model has {} layers", types.size(), L()));
  if (!fields.status().ok()) return;
  for (size_t i = 0; i < windows.size(); ++i) {
    bool local = has_window(static_cast<int64_t>(i));
    if (!types.empty()) {
      local = types[i] == "sliding_attention";
      if (!local && types[i] != "full_attention")
        fields.fail(StatusCode::kUnsupported,
                    format("layer_types has '{}'; known: full_attention, sliding_attention", types[i]));
    }
    if (local) windows[i] = window;
  }
  if (std::ranges::any_of(windows, [](int64_t each) { return each > 0; }))
    out.config.lists["windows"] = windows;
}

void HuggingfaceReader::read_window(std::optional<int64_t> otherwise) {
  // null is none, which an absent key is only where the class says so.
  const bool is_null = json.contains("sliding_window") && json["sliding_window"].is_null();
  const int64_t window =
      is_null ? 0 : fields.integer("sliding_window", otherwise.value_or(0), 0, kLongestWindow);
  if (window > 0 && window < size("T")) size("window") = window;
}

void HuggingfaceReader::read_window_from_layer() {
  const bool uses = fields.flag("use_sliding_window", false);
  const int64_t window = fields.integer("sliding_window", 4096, 0, kLongestWindow);
  const int64_t from = fields.integer("max_window_layers", 28, 0, int64_t{1} << 31);
  read_windows(uses && window < size("T") ? window : 0, [&](int64_t i) { return uses && i >= from; });
}

void HuggingfaceReader::read_biases() {
  const bool biased = fields.flag("attention_bias", false);
  if (biased) flag("qkv_bias") = flag("o_bias") = true;
}

void HuggingfaceReader::read_mlp_bias() {
  if (fields.flag("mlp_bias", false)) flag("mlp_bias") = true;
}

void HuggingfaceReader::read_router(int64_t experts, int64_t used) {
  size("E") = fields.size("num_local_experts", fields.size("num_experts", experts));
  size("K") = fields.size("num_experts_per_tok", used);
  real("capacity") = 0;  // none is dropped
  real("aux") = fields.real("router_aux_loss_coef", 0.001);
}

void HuggingfaceReader::read_sparse_layers(int64_t expert_width) {
  size("FD") = size("F");
  size("F") = fields.size("moe_intermediate_size", expert_width);
  const int64_t step = fields.integer("decoder_sparse_step", 1, 1, int64_t{1} << 31);
  const std::vector<double> dense = fields.reals("mlp_only_layers", static_cast<size_t>(kMostLayers));
  if (!fields.status().ok()) return;
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < L(); ++i)
    layers.push_back((i + 1) % step == 0 && std::ranges::find(dense, static_cast<double>(i)) == dense.end());
  if (std::ranges::find(layers, 0) != layers.end()) out.config.lists["expert_layers"] = layers;
}

double HuggingfaceReader::positive(const char* key, double otherwise) {
  const double value = fields.real(key, otherwise);
  if (!(value > 0)) fields.fail(StatusCode::kCorrupt, format("{} is {}, wanted more than 0", key, value));
  return value;
}

double HuggingfaceReader::cap(const char* key, double otherwise) {
  if (json.contains(key) && json[key].is_null()) return 0;
  return fields.real(key, otherwise);
}

void HuggingfaceReader::read_end_ids() {
  const Json* ids = fields.any("eos_token_id");
  if (ids == nullptr) return;
  const Json list = ids->is_array() ? *ids : Json::array({*ids});
  for (const Json& id : list) {
    if (!id.is_number_integer() || list.size() > 256 || id.get<int64_t>() < 0 ||
        id.get<int64_t>() >= (int64_t{1} << 31)) {
      fields.fail(StatusCode::kCorrupt,
                  format("eos_token_id is {}, wanted a token or several", quote_json(*ids, 60)));
      return;
    }
    out.end_ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
  }
}

}  // namespace tessera
