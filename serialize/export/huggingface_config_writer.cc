#include "serialize/export/huggingface_config_writer.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "graph/base/text.h"
#include "serialize/export/decoder_facts.h"
#include "serialize/export/huggingface_encoder_writer.h"
#include "serialize/import/huggingface_config.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

int64_t largest_window(const DecoderSizes& m) {
  return m.windows.empty() ? 0 : *std::ranges::max_element(m.windows);
}

Json window_or_null(const DecoderSizes& m) {
  const int64_t window = largest_window(m);
  return window > 0 ? Json(window) : Json();
}

// An integer if the value is one, as classes check it.
Json whole(double value) {
  const double nearest = std::nearbyint(value);
  return std::abs(value - nearest) <= 1e-9 * std::abs(nearest) ? Json(static_cast<int64_t>(nearest)) : Json(value);
}

// KeyWriter: config.json by a class's keys. Values come by name from the configuration with its defaults, lists by layer from
// the decoder's sizes. What a class cannot state is found by reading the result again.
class KeyWriter final : public HuggingfaceKeys {
 public:
  KeyWriter(const ModelConfig& config, const DecoderSizes* m, Json scaling, Json& json)
      : config_(config), m_(m), scaling_(std::move(scaling)), json_(json) {}

  const ModelConfig& values() const override { return config_; }
  void fail(StatusCode, std::string) override {}

  void size(std::string_view key, std::string_view ours, std::optional<int64_t> otherwise) override {
    put(key) = our_size(ours, otherwise.value_or(0));
  }
  void real(std::string_view key, std::string_view ours, std::optional<double> otherwise, KeyForm form) override {
    const double value = our_real(ours, otherwise.value_or(0));
    put(key) = form == KeyForm::kInverse ? 1 / value : value;
  }
  void flag(std::string_view key, std::string_view ours, bool otherwise) override { put(key) = our_flag(ours, otherwise); }
  void size_or_zero(std::string_view key, std::string_view ours, int64_t) override { put(key) = our_size(ours); }
  size_t choice(std::string_view key, std::initializer_list<std::string_view> texts, size_t index) override {
    put(key) = texts.begin()[index];
    return index;
  }

  void decoder(const HuggingfaceDefaults& defaults, const ActivationKey& activation) override {
    put("vocab_size") = m_->V;
    put("hidden_size") = m_->C;
    put("intermediate_size") = m_->F;
    put("num_hidden_layers") = m_->L;
    put("num_attention_heads") = m_->H;
    put("num_key_value_heads") = m_->KV;
    put("head_dim") = m_->D;
    if (!activation.key.empty()) put(activation.key) = activation.name;
    put("max_position_embeddings") = m_->T;
    put(defaults.norm_key) = m_->norm_eps;
    put("tie_word_embeddings") = m_->tied;
  }

  void rotation(const RotationKeys& keys) override {
    put("rope_theta") = m_->rope_theta;
    // A class that scales where the file has no scaling is told not to.
    put("rope_scaling") = scaling_.is_null() && !keys.scaling.empty() ? Json{{"rope_type", "default"}} : scaling_;
    if (keys.scales_queries) state_query_scale();
    if (keys.original_context) put("original_max_position_embeddings") = m_->rope_switch > 0 ? m_->rope_switch : m_->T;
    if (keys.rotates_part) put("partial_rotary_factor") = static_cast<double>(m_->R) / static_cast<double>(m_->D);
  }

  void rotations(const LayerRotationKeys& keys) override {
    const double local = m_->window_theta == 0 ? m_->rope_theta : m_->window_theta;
    if (!keys.local_key.empty()) {
      rotation({});
      put(keys.local_key) = local;
      return;
    }
    Json full = scaling_.is_null() ? Json{{"rope_type", "default"}} : scaling_;
    full["rope_theta"] = m_->rope_theta;
    put("rope_parameters") = {{"full_attention", std::move(full)},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
  }

  void window(std::optional<int64_t>, bool) override { put("sliding_window") = window_or_null(*m_); }
  void windows_from_layer(int64_t, int64_t) override {
    optional_window(0);
    const auto first = std::ranges::find_if(m_->windows, [](int64_t window) { return window > 0; });
    put("max_window_layers") = largest_window(*m_) > 0 ? first - m_->windows.begin() : m_->L;
    put_layer_types();
  }
  void optional_window(int64_t) override {
    put("use_sliding_window") = largest_window(*m_) > 0;
    put("sliding_window") = window_or_null(*m_);
  }
  void alternating_windows(int64_t window, int64_t layer) override { windows_from_layer(window, layer); }
  void windows(const WindowKeys& keys) override {
    if (!keys.layers_without.empty()) {
      optional_window(0);
    } else {
      put("sliding_window") = largest_window(*m_) > 0 || !keys.must_have ? largest_window(*m_) : m_->T;
    }
    if (!keys.both_directions.empty() && !m_->causal) state_directions(keys.both_directions);
    put_layer_types();
  }

  void recurrent(const RecurrentKeys& keys) override {
    Json types = Json::array();
    for (const int64_t is_recurrent : m_->recurrent.layers) types.push_back(is_recurrent != 0 ? keys.type : "full_attention");
    put("layer_types") = std::move(types);
  }
  void head_width(std::string_view key, std::string_view expand_key, int64_t) override {
    const RecurrentSizes& r = m_->recurrent;
    put(key) = r.V;
    put(expand_key) = r.H * r.V / m_->C;
  }
  void step_limits(std::string_view key) override {
    const RecurrentSizes& r = m_->recurrent;
    const Json most = r.most_step > 0 ? Json(r.most_step) : Json{{"__float__", "Infinity"}};
    put(key) = Json::array({r.least_step, most});
  }
  void single_halves(std::string_view key, std::string_view) override {
    Json types = Json::array();
    for (size_t i = 0; i < static_cast<size_t>(m_->L); ++i)
      types.push_back(m_->has_mixer(i) ? (m_->is_recurrent(i) ? "linear_attention" : "full_attention") : m_->has_experts(i) ? "moe" : "mlp");
    put(key) = std::move(types);
    json_.erase("num_hidden_layers");
  }
  void adjusted_width() override { put("block_auto_adjust_ff_dim") = false; }
  void renamed_size(std::string_view, std::string_view) override {}
  void renamed_flag(std::string_view, std::string_view) override {}
  void rotates_if(std::string_view key, std::string_view text) override {
    const bool rotates = m_->rope_layers.empty() || std::ranges::find(m_->rope_layers, 1) != m_->rope_layers.end();
    put(key) = rotates ? text : "nope";
  }

  void full_heads(const FullHeadKeys& keys) override {
    const size_t window = m_->window_layer(), full = m_->full_layer();
    const bool are_values = !m_->key_values.empty();
    put("head_dim") = m_->head_size(window);
    put("num_key_value_heads") = m_->kv_count(are_values ? window : full);
    put(keys.size) = m_->head_size(full);
    put(keys.count) = are_values ? Json(m_->kv_count(full)) : Json();
    put(keys.are_values) = are_values;
  }
  void double_widths(std::string_view key) override {
    put("intermediate_size") = m_->ffn_width(0);
    put(key) = !m_->ffn_widths.empty();
  }
  void attention_bias() override { put("attention_bias") = m_->qkv_bias || m_->o_bias; }
  void head_size(int64_t) override { json_.erase("head_dim"); }
  void optional_size(std::string_view key, std::string_view ours, int64_t) override {
    const int64_t value = our_size(ours);
    put(key) = value > 0 ? Json(value) : Json();
  }
  void negated_flag(std::string_view key, std::string_view ours, bool otherwise) override {
    put(key) = !our_flag(ours, !otherwise);
  }
  void positive(std::string_view key, std::string_view ours, double otherwise, KeyForm form) override {
    real(key, ours, otherwise, form);
  }
  void rope_layers(std::string_view key, std::string_view, int64_t) override {
    put(key) = m_->rope_layers.empty() ? Json(std::vector<int64_t>(static_cast<size_t>(m_->L), 1)) : Json(m_->rope_layers);
  }
  void score_scale(std::string_view key, double) override {
    put(key) = m_->attention_scale == 0 ? 1 / std::sqrt(static_cast<double>(m_->D)) : m_->attention_scale;
  }
  void score_divisor(std::string_view key, double) override {
    put(key) = m_->attention_scale == 0 ? Json(m_->D) : whole(1 / (m_->attention_scale * m_->attention_scale));
  }
  void cap(std::string_view key, std::string_view ours, double) override {
    const double value = our_real(ours);
    put(key) = value == 0 ? Json() : Json(value);
  }

  void router(std::string_view key, int64_t, int64_t, double) override {
    put(key) = m_->experts.E;
    put("num_experts_per_tok") = m_->experts.K;
    put("router_aux_loss_coef") = m_->experts.aux;
    put("output_router_logits") = false;
  }
  void optional_experts(const OptionalExpertKeys& keys) override {
    const ExpertSizes& e = m_->experts;
    const auto put_or_null = [&](std::string_view key, int64_t value) { put(key) = e.E > 0 ? Json(value) : Json(); };
    put(keys.enabled) = e.E > 0;
    put_or_null(keys.count, e.E), put_or_null(keys.used, e.K), put_or_null(keys.width, m_->F);
  }
  void sparse_layers(int64_t width) override {
    expert_width("moe_intermediate_size", width);
    Json dense = Json::array();
    for (size_t i = 0; i < m_->experts.layers.size(); ++i)
      if (m_->experts.layers[i] == 0) dense.push_back(i);
    put("decoder_sparse_step") = 1;
    put("mlp_only_layers") = std::move(dense);
  }
  bool has_expert_layers() const override { return m_->experts.E > 0; }
  void expert_width(std::string_view key, int64_t) override {
    put("intermediate_size") = m_->experts.FD;
    put(key) = m_->F;
  }
  void shared_experts(std::string_view key, int64_t) override { put(key) = m_->experts.FS / m_->F; }
  void dense_first(std::string_view key, int64_t) override {
    const std::vector<int64_t>& layers = m_->experts.layers;
    put(key) = std::ranges::find(layers, 1) - layers.begin();
  }
  void expert_layer_types(std::string_view key) override {
    Json types = Json::array();
    for (size_t i = 0; i < static_cast<size_t>(m_->L); ++i) types.push_back(m_->has_experts(i) ? "sparse" : "dense");
    put(key) = std::move(types);
  }
  void draft_blocks(const DraftBlockKeys& keys) override {
    put(keys.key) = m_->MTP;
    if (!keys.tables_key.empty()) put(keys.tables_key) = m_->draft_tables;
  }
  void states(std::string_view key, double value) override { put(key) = value; }
  void states_size(std::string_view key, int64_t value) override { put(key) = value; }
  void wants(std::string_view key, std::string_view value, std::string_view) override { put(key) = Json::parse(value); }

 protected:
  ModelConfig* set_values() override { return nullptr; }

 private:
  // The class's own key, with the window of both sides together.
  void state_directions(std::string_view value) {
    json_.erase("is_causal");
    put("use_bidirectional_attention") = Json::parse(value);
    if (largest_window(*m_) > 0) put("sliding_window") = 2 * largest_window(*m_);
  }
  void state_query_scale() {
    Json& rope = put("rope_scaling");
    if (rope.is_null()) rope = {{"rope_type", "default"}};
    rope["llama_4_scaling_beta"] = m_->query_beta;
    if (m_->query_beta > 0) rope["original_max_position_embeddings"] = m_->query_context;
  }

  Json& put(std::string_view key) { return json_[std::string(key)]; }
  void put_layer_types() {
    Json types = Json::array();
    for (const int64_t window : m_->windows) types.push_back(window > 0 ? "sliding_attention" : "full_attention");
    while (types.size() < static_cast<size_t>(m_->L)) types.push_back("full_attention");
    put("layer_types") = std::move(types);
  }

  const ModelConfig& config_;
  const DecoderSizes* const m_;  // null for families that decoder.h does not build
  const Json scaling_;
  Json& json_;
};

// Head: selects the class by its output head.
enum class Head : uint8_t { kVocabulary, kNone, kClasses };

Json head_of(std::string_view model_type, std::string_view architecture) {
  return {{"architectures", Json::array({architecture})}, {"model_type", model_type}};
}

// "Qwen3ForCausalLM" -> "Qwen3Model", "Qwen3ForSequenceClassification".
std::string architecture_of(const HuggingfaceClass& kind, Head head) {
  const std::string_view causal = kind.architecture;
  if (head == Head::kVocabulary) return std::string(causal);
  constexpr std::string_view kCausal = "ForCausalLM", kGpt2 = "LMHeadModel";
  const size_t suffix = (causal.ends_with(kCausal) ? kCausal : kGpt2).size();
  const std::string name(kind.base.empty() ? causal.substr(0, causal.size() - suffix) : kind.base);
  return name + (head == Head::kNone ? "Model" : "ForSequenceClassification");
}

// Writes classifier settings; null: no padding token.
void put_classes(Json& json, const ExportedConfig& model, int64_t count) {
  if (count == 0) return;
  put_labels(json, model, count);
  json["pad_token_id"] = model.padding ? Json(*model.padding) : Json();
}

// Windows of bidirectional decoders include the token at their distance.
void exclude_distance(DecoderSizes& m) {
  for (int64_t& window : m.windows) window -= window > 0 ? 1 : 0;
}

Json class_json(const HuggingfaceClass& kind, const ExportedConfig& model, const ModelConfig& values, Json scaling) {
  const int64_t classes = values.sizes.contains("classes") ? values.sizes.at("classes") : 0;
  const auto flag = [&](const char* name) { return !values.flags.contains(name) || values.flags.at(name); };
  const Head head = classes > 0 ? Head::kClasses : flag("head") ? Head::kVocabulary : Head::kNone;
  Json json = head_of(kind.model_type, architecture_of(kind, head));
  if (!flag("causal")) json["is_causal"] = false;
  std::optional<DecoderSizes> written = model.decoder;
  if (written && !written->causal) exclude_distance(*written);
  KeyWriter writer(values, written ? &*written : nullptr, std::move(scaling), json);
  kind.keys(writer);
  put_classes(json, model, classes);
  return json;
}

// Checks that a reader would get the same model, or names the difference.
Status check_read_again(const Json& json, const ExportedConfig& model,
                        const std::optional<RopeFactors>& factors) {
  TSR_ASSIGN_OR_RETURN(HuggingfaceConfig again, read_huggingface_config(json));
  if (!model.decoder) return {};
  if (!model.decoder->head) again.config.flags["head"] = false;  // determined by tensors
  if (!model.decoder->dense.widths.empty()) again.config.lists["dense"] = model.decoder->dense.widths;  // by modules.json
  if (model.decoder->dense.bias) again.config.flags["dense_bias"] = true;
  TSR_ASSIGN_OR_RETURN(const DecoderSizes sizes, decoder_sizes(again.config, model.family->decoder));
  std::string found = first_difference(*model.decoder, sizes);
  if (found.empty() && factors &&
      (!again.scaling || !std::ranges::equal(again.scaling->values().data, factors->values.data)))
    found = "the factors of its rotations";
  if (found.empty()) return {};
  return unsupported(format("transformers' {} has no word for {} of this {}",
                            json["model_type"].get<std::string>(), found, model.config.family));
}

// Candidates of rope_scaling objects that may give the factors, best first.
std::vector<Json> scalings_of(const ExportedConfig& model, const std::optional<RopeFactors>& factors) {
  if (!factors || !model.decoder) return {Json()};
  const DecoderSizes& m = *model.decoder;
  std::vector<Json> all;
  if (!factors->words.empty())
    if (Result<Json> words = parse_json(factors->words, "rope_scaling"); words.ok() && words->is_object())
      all.push_back(std::move(*words));
  const std::span<const float> values = factors->values.as<float>();
  if (m.rope_rows == 1 && m.rope_magnitude == 1 &&
      std::ranges::count(values, values[0]) == std::ssize(values))
    all.push_back({{"rope_type", "linear"}, {"factor", values[0]}});
  const auto pairs = static_cast<size_t>(m.scaled_pairs());
  const auto first = values.first(pairs), last = values.last(pairs);
  if (const auto rotated = std::ranges::find(values, kUnrotated) - values.begin(); m.rope_rows == 1 && rotated > 0)
    all.push_back({{"rope_type", "proportional"},
                   {"partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(pairs)},
                   {"factor", values[0]}});
  all.push_back({{"rope_type", "longrope"},
                 {"short_factor", std::vector<float>(first.begin(), first.end())},
                 {"long_factor", std::vector<float>(last.begin(), last.end())},
                 {"attention_factor", m.rope_magnitude},
                 {"original_max_position_embeddings", m.rope_switch > 0 ? m.rope_switch : m.T}});
  return all;
}

}  // namespace

Result<Json> write_huggingface_config(const ExportedConfig& model,
                                      const std::optional<RopeFactors>& factors) {
  if (model.encoder && model.config.family != "encoder") return write_huggingface_encoder(model);
  if (model.family->classes.empty()) {
    std::vector<std::string> known;
    for (const ModelFamily& each : all_model_families())
      if (!each.classes.empty() || (each.encoder != nullptr && each.name != "encoder")) known.emplace_back(each.name);
    return unsupported(format("a model of family '{}' cannot be written as a Hugging Face folder; known: {}",
                              model.config.family, join(known, ", ")));
  }
  TSR_ASSIGN_OR_RETURN(const ModelConfig values, with_defaults(model.config));
  Status status;
  for (const HuggingfaceClass& kind : model.family->classes)
    for (Json& scaling : kind.architecture.empty() ? std::vector<Json>() : scalings_of(model, factors)) {
      Json json = class_json(kind, model, values, std::move(scaling));
      Status read = check_read_again(json, model, factors);
      if (read.ok()) return json;
      if (status.ok()) status = std::move(read);
    }
  return status;
}

}  // namespace tessera
