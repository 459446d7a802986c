#include "serialize/import/huggingface_reader.h"

#include <algorithm>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/huggingface_labels.h"

namespace tessera {

void HuggingfaceReader::read_decoder(std::string_view family, const HuggingfaceDefaults& defaults,
                                     std::string_view activation_key, std::string_view activation) {
  out.config.family = family;
  size("C") = fields.size("hidden_size", defaults.C);
  size("L") = fields.integer("num_hidden_layers", defaults.L, 1, kMostLayers);
  size("H") = fields.size("num_attention_heads", defaults.H);
  size("KV") = fields.size("num_key_value_heads", defaults.KV == 0 ? size("H") : defaults.KV);
  // The default, also for null, is the quotient.
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
  // null means no window; an absent key means it only if the class says so.
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
  real("capacity") = 0;  // no token is dropped
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

void HuggingfaceReader::read_direction() {
  if (fields.flag("is_causal", true)) return;
  flag("causal") = false;
  if (const auto window = out.config.sizes.find("window"); window != out.config.sizes.end()) ++window->second;
  for (int64_t& window : out.config.lists["windows"])
    if (window > 0) ++window;
  if (out.config.lists["windows"].empty()) out.config.lists.erase("windows");
}

void HuggingfaceReader::read_class(std::optional<int64_t> padding) {
  const std::vector<std::string> names = fields.texts("architectures", 16);
  if (names.empty()) return;
  const std::string_view name = names[0];
  const size_t head = name.rfind("For");
  const std::string_view kind = head == name.npos ? std::string_view("Model") : name.substr(head);
  const bool is_base = kind == "Model" && name.ends_with(kind);
  if (is_base || kind == "ForCausalLM" || kind == "ForConditionalGeneration") return;
  if (kind != "ForSequenceClassification") {
    fields.fail(StatusCode::kUnsupported,
                format("architectures has '{}'; known of {}: …Model, …ForCausalLM, …ForSequenceClassification",
                       quote(name, 80), out.model_type));
    return;
  }
  const auto other = out.config.sizes.extract("N");  // DeepSeek's size of that name
  read_labels(fields, out);
  if (!fields.status().ok()) return;
  size("classes") = size("N");
  out.config.sizes.erase("N");
  if (!other.empty()) size("N") = other.mapped();
  const bool is_none = fields.is_given("pad_token_id") ? !fields.has("pad_token_id") : !padding;
  if (!is_none) out.padding = fields.integer("pad_token_id", padding, -1, (int64_t{1} << 31) - 1);
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
