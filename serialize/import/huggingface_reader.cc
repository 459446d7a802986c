#include "serialize/import/huggingface_reader.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/huggingface_labels.h"

namespace tessera {

// ---- single keys

void HuggingfaceReader::size(std::string_view key, std::string_view ours, std::optional<int64_t> otherwise) {
  out.config.sizes[std::string(ours)] =
      ours == "L" ? fields.integer(key, otherwise, 1, kMostLayers) : fields.size(key, otherwise);
}

double HuggingfaceReader::number(std::string_view key, std::optional<double> otherwise, KeyForm form) {
  const double value = fields.real(key, otherwise);
  return form == KeyForm::kInverse ? 1 / value : value;
}

void HuggingfaceReader::real(std::string_view key, std::string_view ours, std::optional<double> otherwise, KeyForm form) {
  out.config.reals[std::string(ours)] = number(key, otherwise, form);
}

void HuggingfaceReader::positive(std::string_view key, std::string_view ours, double otherwise, KeyForm form) {
  const double value = fields.real(key, otherwise);
  if (!(value > 0)) fields.fail(StatusCode::kCorrupt, format("{} is {}, wanted more than 0", key, value));
  out.config.reals[std::string(ours)] = number(key, otherwise, form);
}

void HuggingfaceReader::flag(std::string_view key, std::string_view ours, bool otherwise) {
  out.config.flags[std::string(ours)] = fields.flag(key, otherwise);
}

void HuggingfaceReader::negated_flag(std::string_view key, std::string_view ours, bool otherwise) {
  out.config.flags[std::string(ours)] = !fields.flag(key, otherwise);
}

void HuggingfaceReader::size_or_zero(std::string_view key, std::string_view ours, int64_t otherwise) {
  const int64_t value = fields.integer(key, otherwise, 0, (int64_t{1} << 31) - 1);
  if (value > 0) out.config.sizes[std::string(ours)] = value;
}

size_t HuggingfaceReader::choice(std::string_view key, std::initializer_list<std::string_view> texts, size_t) {
  const std::string found = fields.text(key, std::string(*texts.begin()));
  const auto at = std::ranges::find(texts, std::string_view(found));
  if (at == texts.end())
    fields.fail(StatusCode::kUnsupported,
                format("{} is '{}'; known: {}", key, quote(found, 60),
                       join(std::vector<std::string>(texts.begin(), texts.end()), ", ")));
  return at == texts.end() ? 0 : static_cast<size_t>(at - texts.begin());
}

void HuggingfaceReader::optional_size(std::string_view key, std::string_view ours, int64_t otherwise) {
  if (!fields.has(key) && (fields.is_given(key) || otherwise == 0)) return;
  size(key, ours, otherwise);
}

void HuggingfaceReader::wants(std::string_view key, std::string_view value, std::string_view meaning) {
  fields.wants(key, Json::parse(value), meaning);
}

// ---- all decoders

void HuggingfaceReader::decoder(const HuggingfaceDefaults& defaults, const ActivationKey& activation) {
  size("hidden_size", "C", defaults.C);
  size("num_hidden_layers", "L", defaults.L);
  size("num_attention_heads", "H", defaults.H);
  size("num_key_value_heads", "KV", defaults.KV == 0 ? size_("H") : defaults.KV);
  // The default, also for null, is the quotient.
  size("head_dim", "D", defaults.D > 0 ? defaults.D : std::max<int64_t>(1, size_("C") / size_("H")));
  size("intermediate_size", "F", defaults.F);
  size("vocab_size", "V", defaults.V);
  size("max_position_embeddings", "T", defaults.T);
  real(defaults.norm_key, "norm_eps", defaults.norm_eps, KeyForm::kSame);
  flag("tie_word_embeddings", "tied", defaults.tied);
  flag_("rope_half") = true;
  default_theta_ = defaults.rope_theta;
  if (activation.key.empty()) return;
  const std::string found = fields.text(activation.key, std::string(activation.name));
  if (found != activation.name && (activation.also.empty() || found != activation.also))
    fields.fail(StatusCode::kUnsupported, format("{} is '{}'; only a {} model with '{}' can be imported", activation.key,
                                                 quote(found, 60), out.model_type, activation.name));
}

void HuggingfaceReader::attention_bias() {
  if (fields.flag("attention_bias", false)) flag_("qkv_bias") = flag_("o_bias") = true;
}

void HuggingfaceReader::score_scale(std::string_view key, double otherwise) { positive(key, "attention_scale", otherwise, KeyForm::kSame); }

void HuggingfaceReader::score_divisor(std::string_view key, double otherwise) {
  const double divisor = fields.real(key, otherwise);
  if (!(divisor > 0)) fields.fail(StatusCode::kCorrupt, format("{} is {}, wanted more than 0", key, divisor));
  if (divisor != static_cast<double>(size_("D"))) real_("attention_scale") = 1 / std::sqrt(divisor);
}

void HuggingfaceReader::cap(std::string_view key, std::string_view ours, double otherwise) {
  const bool is_null = fields.is_given(key) && !fields.has(key);
  const double value = is_null ? 0 : fields.real(key, otherwise);
  if (value != 0) out.config.reals[std::string(ours)] = value;
}

void HuggingfaceReader::head_width(std::string_view key, std::string_view expand_key, int64_t expand) {
  const int64_t inner = fields.size(expand_key, expand) * size_("C"), heads = std::max<int64_t>(1, size_("HS"));
  const Json* const given = fields.any(key);
  const bool is_auto = given == nullptr || *given == "auto";
  const int64_t width = is_auto ? inner / heads : fields.size(key, {});
  if (width * heads != inner)
    fields.fail(StatusCode::kCorrupt, format("{} heads of {} numbers, wanted {} numbers in all, {} times the width {}", heads, width,
                                             inner, expand_key, size_("C")));
  size_("VS") = width;
}

void HuggingfaceReader::step_limits(std::string_view key) {
  const Json* const given = fields.any(key);
  if (given == nullptr) return;
  const bool is_pair = given->is_array() && given->size() == 2 && (*given)[0].is_number();
  const auto is_infinite = [](const Json& limit) {  // transformers writes {"__float__": "Infinity"}
    return limit.is_null() || (limit.is_object() && limit.value("__float__", Json()) == "Infinity");
  };
  if (!is_pair || !((*given)[1].is_number() || is_infinite((*given)[1])))
    return fields.fail(StatusCode::kCorrupt, format("{} is {}, wanted the least and the most step", key, quote_json(*given, 60)));
  const double least = (*given)[0].get<double>(), most = is_infinite((*given)[1]) ? 0 : (*given)[1].get<double>();
  if (least < 0 || (most != 0 && most < least))
    return fields.fail(StatusCode::kCorrupt, format("{} is {}, wanted the least and the most step", key, quote_json(*given, 60)));
  if (least > 0) real_("least_step") = least;
  if (most > 0 && std::isfinite(most)) real_("most_step") = most;
}

void HuggingfaceReader::adjusted_width() {
  const bool adjusts = fields.flag("block_auto_adjust_ff_dim", true);
  const int64_t multiple = fields.size("block_multiple_of", 256);
  const bool is_plain = fields.is_given("block_ffn_dim_multiplier") && !fields.has("block_ffn_dim_multiplier");
  const double factor = is_plain ? 1 : fields.real("block_ffn_dim_multiplier", 1);
  if (!(factor > 0) || factor > 1024)
    fields.fail(StatusCode::kCorrupt, format("block_ffn_dim_multiplier is {}, wanted more than 0, at most 1024", factor));
  if (!adjusts || !fields.status().ok()) return;
  int64_t& width = size_("F");
  width = 2 * width / 3;
  if (is_plain) return;
  width = static_cast<int64_t>(factor * static_cast<double>(width));
  width = (width + multiple - 1) / multiple * multiple;
}

void HuggingfaceReader::renamed_size(std::string_view key, std::string_view ours) {
  if (fields.has(key)) size(key, ours, {});
}

void HuggingfaceReader::renamed_flag(std::string_view key, std::string_view ours) {
  if (fields.has(key)) flag(key, ours, false);
}

void HuggingfaceReader::rotates_if(std::string_view key, std::string_view text) {
  const bool is_null = fields.is_given(key) && !fields.has(key);
  const std::string found = is_null ? std::string("nope") : fields.text(key, "nope");
  if (found != text && found != "nope")
    fields.fail(StatusCode::kUnsupported, format("{} is '{}'; known: {}, nope", key, quote(found, 60), text));
  if (found != text && fields.status().ok()) out.config.lists["rope_layers"].assign(static_cast<size_t>(L()), 0);
}

// ---- kinds of layers

namespace {
constexpr std::string_view kFullAttention = "full_attention";  // "attention" in older files
}  // namespace

void HuggingfaceReader::recurrent(const RecurrentKeys& keys) {
  constexpr std::string_view kOlderAttention = kFullAttention.substr(5);
  const std::vector<std::string> types =
      fields.texts(fields.has("layer_types") ? "layer_types" : "layers_block_type", static_cast<size_t>(kMostLayers));
  if (keys.wants_types && types.empty())
    fields.fail(StatusCode::kCorrupt, format("layer_types is missing: wanted {} or {} for each of {} layers", keys.type, kFullAttention, L()));
  const int64_t every = keys.every_key.empty() ? keys.every : fields.integer(keys.every_key, keys.every, 1, int64_t{1} << 31);
  std::vector<double> attending;
  const bool has_list = !keys.attention_layers.empty() && fields.has(keys.attention_layers);
  if (has_list) attending = fields.reals(keys.attention_layers, static_cast<size_t>(kMostLayers));
  if (!types.empty() && static_cast<int64_t>(types.size()) != L())
    fields.fail(StatusCode::kCorrupt, format("layer_types has {} names, the model has {} layers", types.size(), L()));
  if (!fields.status().ok()) return;
  std::vector<int64_t>& layers = out.config.lists["recurrent"];
  for (int64_t i = 0; i < L(); ++i) {
    bool is_recurrent = every == 0 || (i + 1) % every != 0;
    if (!keys.attention_layers.empty())
      is_recurrent = has_list && std::ranges::find(attending, static_cast<double>(i)) == attending.end();
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(i)];
      is_recurrent = type == keys.type || (!keys.also.empty() && type == keys.also);
      if (!is_recurrent && type != kFullAttention && type != kOlderAttention)
        fields.fail(StatusCode::kUnsupported, format("layer_types has '{}'; known: {}, {}", quote(type, 60), kFullAttention, keys.type));
    }
    layers.push_back(is_recurrent);
  }
}

void HuggingfaceReader::single_halves(std::string_view key, std::string_view pattern_key) {
  std::vector<std::string> types = fields.texts(key, static_cast<size_t>(kMostLayers));
  if (types.empty())
    for (const char letter : fields.text(pattern_key, "")) types.emplace_back(1, letter);
  if (types.empty() || std::ssize(types) > kMostLayers)
    fields.fail(StatusCode::kCorrupt, format("{} has {} layers, wanted 1 to {}", key, types.size(), kMostLayers));
  if (!fields.status().ok()) return;
  size_("L") = std::ssize(types);
  std::vector<int64_t> &halves = out.config.lists["halves"], &states = out.config.lists["recurrent"],
                       &experts = out.config.lists["expert_layers"];
  for (const std::string& type : types) {
    const bool is_state = type == "linear_attention" || type == "mamba" || type == "M";
    const bool is_attention = type == kFullAttention || type == kFullAttention.substr(5) || type == "*";
    const bool has_experts = type == "moe" || type == "E";
    if (!is_state && !is_attention && !has_experts && type != "mlp" && type != "-")
      fields.fail(StatusCode::kUnsupported,
                  format("{} has '{}'; known: linear_attention, full_attention, mlp, moe, and M, *, -, E", key, quote(type, 60)));
    halves.push_back(is_state || is_attention ? 1 : 2);
    states.push_back(is_state);
    experts.push_back(has_experts);
  }
  if (!has_expert_layers()) out.config.lists.erase("expert_layers");
}

// ---- windows

namespace {

bool sees_both_directions(JsonFields& fields) {
  constexpr std::string_view kKey = "use_bidirectional_attention";
  const Json* const value = fields.any(kKey);
  if (value == nullptr || !value->is_string()) return fields.flag(kKey, false);
  const std::string text = fields.text(kKey);
  if (text != "all" && text != "vision")  // between parts of images alone
    fields.fail(StatusCode::kUnsupported, format("{} is '{}'; known: all, vision, true, false", kKey, quote(text, 60)));
  return text == "all";
}

}  // namespace

void HuggingfaceReader::read_windows(int64_t window, const std::function<bool(int64_t layer)>& has_window) {
  const std::vector<std::string> types = fields.texts("layer_types", static_cast<size_t>(kMostLayers));
  if (!types.empty() && static_cast<int64_t>(types.size()) != L())
    fields.fail(StatusCode::kCorrupt,
                format("layer_types has {} names, the model has {} layers", types.size(), L()));
  if (!fields.status().ok()) return;
  std::vector<int64_t> windows(static_cast<size_t>(L()), 0);
  for (size_t i = 0; i < windows.size(); ++i) {
    bool local = has_window(static_cast<int64_t>(i));
    if (!types.empty()) {
      local = types[i] == "sliding_attention";
      if (!local && types[i] != "full_attention")
        fields.fail(StatusCode::kUnsupported, format("layer_types has '{}'; known: full_attention, sliding_attention",
                                                     quote(types[i], 60)));
    }
    if (local) windows[i] = window;
  }
  if (std::ranges::any_of(windows, [](int64_t each) { return each > 0; }))
    out.config.lists["windows"] = windows;
}

void HuggingfaceReader::window(std::optional<int64_t> otherwise, bool one_kind) {
  // null means no window; an absent key means it only if the class says so.
  const bool is_null = fields.is_given("sliding_window") && !fields.has("sliding_window");
  const int64_t window = is_null ? 0 : fields.integer("sliding_window", otherwise.value_or(0), 0, kLongestWindow);
  if (window > 0 && window < size_("T")) size_("window") = window;
  if (!one_kind) return;
  for (const std::string& type : fields.texts("layer_types", static_cast<size_t>(kMostLayers)))
    if (type != (window > 0 ? "sliding_attention" : "full_attention"))
      fields.fail(StatusCode::kUnsupported,
                  format("layer_types has '{}'; the class of {} has one kind of layers: sliding_attention with a "
                         "sliding_window, else full_attention",
                         quote(type, 60), out.model_type));
}

void HuggingfaceReader::optional_window(int64_t window_otherwise) {
  if (fields.flag("use_sliding_window", false)) window(window_otherwise, false);
}

void HuggingfaceReader::windows_from_layer(int64_t window, int64_t layer) {
  const bool uses = fields.flag("use_sliding_window", false);
  window = fields.integer("sliding_window", window, 0, kLongestWindow);
  const int64_t from = fields.integer("max_window_layers", layer, 0, int64_t{1} << 31);
  read_windows(uses && window < size_("T") ? window : 0, [&](int64_t i) { return uses && i >= from; });
}

void HuggingfaceReader::alternating_windows(int64_t window, int64_t layer) {
  const bool uses = fields.flag("use_sliding_window", false);
  window = fields.integer("sliding_window", window, 0, kLongestWindow);
  const int64_t until = fields.integer("max_window_layers", layer, 0, int64_t{1} << 31);
  read_windows(uses && window < size_("T") ? window : 0, [&](int64_t i) { return uses && i % 2 == 0 && i < until; });
}

void HuggingfaceReader::windows(const WindowKeys& keys) {
  if (!keys.layers_without.empty()) {
    const bool uses = fields.flag("use_sliding_window", false);
    const int64_t window = fields.integer("sliding_window", keys.otherwise, 0, kLongestWindow);
    const std::vector<int64_t>& layers = out.config.lists[std::string(keys.layers_without)];
    if (fields.status().ok())
      read_windows(window, [&](int64_t i) { return uses && window > 0 && layers[static_cast<size_t>(i)] == 0; });
    return;
  }
  int64_t every = keys.every;
  if (!keys.every_key.empty()) every = fields.integer(keys.every_key, every, 1, int64_t{1} << 31);
  int64_t window = fields.integer("sliding_window", keys.otherwise, 1, kLongestWindow);
  if (!keys.both_directions.empty() && sees_both_directions(fields)) {
    flag_("causal") = false;
    window = window / 2 + 1;
  }
  read_windows(window, [&](int64_t i) { return (i + 1) % every != 0; });
  std::vector<int64_t>& windows = out.config.lists["windows"];
  if (keys.last_is_full && !windows.empty()) windows.back() = 0;
  if (std::ranges::count(windows, 0) == std::ssize(windows)) out.config.lists.erase("windows");
}

// ---- sizes of layers

bool HuggingfaceReader::has_window(size_t layer) {
  const auto windows = out.config.lists.find("windows");
  return windows != out.config.lists.end() && windows->second[layer] > 0;
}

void HuggingfaceReader::set_layers(const char* ours, std::vector<int64_t> values, int64_t common) {
  if (std::ranges::count(values, common) != std::ssize(values)) out.config.lists[ours] = std::move(values);
}

void HuggingfaceReader::read_layer_overrides(std::vector<int64_t>& sizes, std::vector<int64_t>& counts) {
  const Json* const layers = fields.object("per_layer_config");
  if (layers == nullptr) return;
  std::ranges::fill(sizes, size_("D")), std::ranges::fill(counts, size_("KV"));
  for (const auto& [key, own] : layers->items()) {
    const std::optional<int64_t> layer = parse_i64(key);
    if (!layer || *layer < 0 || *layer >= L())
      return fields.fail(StatusCode::kCorrupt, format("per_layer_config has '{}', wanted numbers below {}", quote(key, 60), L()));
    if (!own.is_object())
      return fields.fail(StatusCode::kCorrupt, format("per_layer_config {} is {}, wanted an object", key, quote_json(own, 60)));
    JsonFields layer_fields(own, format("config.json: per_layer_config {}", key));
    const auto i = static_cast<size_t>(*layer);
    sizes[i] = layer_fields.size("head_dim", sizes[i]);
    counts[i] = layer_fields.size("num_key_value_heads", counts[i]);
    for (const auto& [other, value] : layer_fields.unused())
      layer_fields.fail(StatusCode::kUnsupported, format("{} is {}; known of single layers: head_dim, num_key_value_heads",
                                                         quote(other, 60), value));
    if (!layer_fields.status().ok()) fields.fail(layer_fields.status().code(), std::string(layer_fields.status().message()));
  }
}

void HuggingfaceReader::full_heads(const FullHeadKeys& keys) {
  const bool are_values = fields.flag(keys.are_values, false);
  const int64_t size = fields.size(keys.size, keys.otherwise);
  const int64_t count = are_values && fields.has(keys.count) ? fields.size(keys.count) : size_("KV");
  std::vector<int64_t> sizes, counts, key_values;
  for (size_t i = 0; i < static_cast<size_t>(L()) && fields.status().ok(); ++i) {
    sizes.push_back(has_window(i) ? size_("D") : size);
    counts.push_back(has_window(i) ? size_("KV") : count);
    key_values.push_back(are_values && !has_window(i));
  }
  if (!fields.status().ok()) return;
  read_layer_overrides(sizes, counts);
  set_layers("head_sizes", std::move(sizes), size_("D"));
  set_layers("kv_heads", std::move(counts), size_("KV"));
  set_layers("key_values", std::move(key_values), 0);
}

void HuggingfaceReader::double_widths(std::string_view key) {
  const int64_t shared = our_size("shared_kv");
  if (!fields.flag(key, false) || shared == 0 || shared > L()) return;
  std::vector<int64_t> widths(static_cast<size_t>(L()), size_("F"));
  for (int64_t i = L() - shared; i < L(); ++i) widths[static_cast<size_t>(i)] *= 2;
  out.config.lists["ffn_widths"] = std::move(widths);
}

void HuggingfaceReader::rope_layers(std::string_view key, std::string_view every_key, int64_t every) {
  every = fields.integer(every_key, every, 1, int64_t{1} << 31);
  const std::vector<double> given = fields.reals(key, static_cast<size_t>(kMostLayers));
  if (!given.empty() && static_cast<int64_t>(given.size()) != L())
    fields.fail(StatusCode::kCorrupt, format("{} has {} numbers, the model has {} layers", key, given.size(), L()));
  if (!fields.status().ok()) return;
  std::vector<int64_t>& turned = out.config.lists["rope_layers"];
  for (int64_t i = 0; i < L(); ++i)
    turned.push_back(given.empty() ? (i + 1) % every != 0 : given[static_cast<size_t>(i)] != 0);
}

// ---- keys of all classes

void HuggingfaceReader::read_direction() {
  if (fields.flag("is_causal", true)) return;
  flag_("causal") = false;
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
  out.is_base = is_base && !name.ends_with("LMHeadModel");  // gpt2's class with a head
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
  size_("classes") = size_("N");
  out.config.sizes.erase("N");
  if (!other.empty()) size_("N") = other.mapped();
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
