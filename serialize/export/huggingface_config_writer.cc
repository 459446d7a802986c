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
  return std::abs(value - nearest) <= 1e-9 * std::abs(nearest) ? Json(static_cast<int64_t>(nearest))
                                                               : Json(value);
}

void put_layer_types(Json& json, const DecoderSizes& m) {
  Json types = Json::array();
  for (const int64_t window : m.windows) types.push_back(window > 0 ? "sliding_attention" : "full_attention");
  while (types.size() < static_cast<size_t>(m.L)) types.push_back("full_attention");
  json["layer_types"] = std::move(types);
}

// ---- keys of each class in addition to the common ones

void put_llama(Json& json, const DecoderSizes& m) {
  json["attention_bias"] = m.qkv_bias || m.o_bias;
  json["mlp_bias"] = m.mlp_bias;
}

void put_mistral(Json& json, const DecoderSizes& m) { json["sliding_window"] = window_or_null(m); }

void put_router(Json& json, const DecoderSizes& m, const char* experts) {
  json[experts] = m.experts.E;
  json["num_experts_per_tok"] = m.experts.K;
  json["router_aux_loss_coef"] = m.experts.aux;
  json["output_router_logits"] = false;
}

void put_mixtral(Json& json, const DecoderSizes& m) {
  put_mistral(json, m);
  put_router(json, m, "num_local_experts");
}

// Writes windows of arbitrary layers.
void put_windows(Json& json, const DecoderSizes& m) {
  const bool uses = largest_window(m) > 0;
  json["use_sliding_window"] = uses;
  json["sliding_window"] = window_or_null(m);
  const auto first = std::ranges::find_if(m.windows, [](int64_t window) { return window > 0; });
  json["max_window_layers"] = uses ? first - m.windows.begin() : m.L;
  put_layer_types(json, m);
}

void put_qwen3(Json& json, const DecoderSizes& m) {
  json["attention_bias"] = m.qkv_bias || m.o_bias;
  put_windows(json, m);
}

// Writes which layers have experts.
void put_sparse_layers(Json& json, const DecoderSizes& m) {
  const ExpertSizes& e = m.experts;
  Json dense = Json::array();
  for (size_t i = 0; i < e.layers.size(); ++i)
    if (e.layers[i] == 0) dense.push_back(i);
  json["intermediate_size"] = e.FD;
  json["moe_intermediate_size"] = m.F;
  json["norm_topk_prob"] = e.normalize;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = std::move(dense);
}

void put_qwen3_moe(Json& json, const DecoderSizes& m) {
  json["attention_bias"] = m.qkv_bias || m.o_bias;
  json["use_sliding_window"] = largest_window(m) > 0;
  json["sliding_window"] = window_or_null(m);
  put_router(json, m, "num_experts");
  put_sparse_layers(json, m);
}

void put_qwen2_moe(Json& json, const DecoderSizes& m) {
  put_windows(json, m);
  json["qkv_bias"] = m.qkv_bias;
  put_router(json, m, "num_experts");
  put_sparse_layers(json, m);
  json["shared_expert_intermediate_size"] = m.experts.FS;
}

void put_gpt_oss(Json& json, const DecoderSizes& m) {
  json["attention_bias"] = m.qkv_bias;
  json["sliding_window"] = largest_window(m) > 0 ? largest_window(m) : m.T;
  put_layer_types(json, m);
  put_router(json, m, "num_local_experts");
  json["swiglu_limit"] = m.experts.limit;
  // By default the class scales.
  if (json["rope_scaling"].is_null()) json["rope_scaling"] = {{"rope_type", "default"}};
}

void put_deepseek(Json& json, const DecoderSizes& m) {
  const ExpertSizes& e = m.experts;
  json.erase("head_dim");
  json["attention_bias"] = m.qkv_bias || m.o_bias;
  json["q_lora_rank"] = m.latent.QA > 0 ? Json(m.latent.QA) : Json();
  json["kv_lora_rank"] = m.latent.KA;
  json["qk_nope_head_dim"] = m.latent.N;
  json["qk_rope_head_dim"] = m.R;
  json["v_head_dim"] = m.latent.VD;
  json["n_routed_experts"] = e.E;
  json["num_experts_per_tok"] = e.K;
  json["n_shared_experts"] = e.FS / m.F;
  json["intermediate_size"] = e.FD;
  json["moe_intermediate_size"] = m.F;
  json["routed_scaling_factor"] = e.scale;
  json["norm_topk_prob"] = e.normalize;
  json["first_k_dense_replace"] = std::ranges::find(e.layers, 1) - e.layers.begin();
  json["n_group"] = e.groups;
  json["topk_group"] = e.groups_used;
}

void put_deepseek_v2(Json& json, const DecoderSizes& m) {
  put_deepseek(json, m);
  json["mlp_bias"] = m.mlp_bias;
  json["scoring_func"] = "softmax";
  json["topk_method"] = m.experts.groups > 1 ? "group_limited_greedy" : "greedy";
}

void put_deepseek_v3(Json& json, const DecoderSizes& m) {
  put_deepseek(json, m);
  json["scoring_func"] = "sigmoid";
  json["topk_method"] = "noaux_tc";
  json["rope_interleave"] = !m.rope_half;
  json["num_nextn_predict_layers"] = 0;
}

void put_gemma1(Json& json, const DecoderSizes& m) {
  json["hidden_act"] = "gelu_pytorch_tanh";
  json["attention_bias"] = m.qkv_bias || m.o_bias;
}

void put_olmo2(Json& json, const DecoderSizes& m) { json["attention_bias"] = m.qkv_bias || m.o_bias; }

// Olmo 3 has a rotation for each kind of layer.
void put_olmo3(Json& json, const DecoderSizes& m) {
  put_olmo2(json, m);
  json["sliding_window"] = largest_window(m);
  put_layer_types(json, m);
  Json full = json["rope_scaling"].is_null() ? Json{{"rope_type", "default"}} : json["rope_scaling"];
  full["rope_theta"] = m.rope_theta;
  json["rope_parameters"] = {
      {"full_attention", std::move(full)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", m.window_theta}}}};
  json.erase("rope_scaling");
  json.erase("rope_theta");
}

void put_granite(Json& json, const DecoderSizes& m) {
  put_llama(json, m);
  json["attention_multiplier"] =
      m.attention_scale == 0 ? 1 / std::sqrt(static_cast<double>(m.D)) : m.attention_scale;
  json["embedding_multiplier"] = m.embedding_scale;
  json["residual_multiplier"] = m.residual_scale;
  json["logits_scaling"] = 1 / m.logit_scale;
}

void put_gemma(Json& json, const DecoderSizes& m) {
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["attention_bias"] = m.qkv_bias || m.o_bias;
  json["query_pre_attn_scalar"] =
      m.attention_scale == 0 ? Json(m.D) : whole(1 / (m.attention_scale * m.attention_scale));
  json["attn_logit_softcapping"] = m.softcap == 0 ? Json() : Json(m.softcap);
  json["final_logit_softcapping"] = m.logit_softcap == 0 ? Json() : Json(m.logit_softcap);
  json["sliding_window"] = largest_window(m) > 0 ? largest_window(m) : m.T;
  put_layer_types(json, m);
}

void put_gemma3(Json& json, const DecoderSizes& m) {
  put_gemma(json, m);
  json["rope_local_base_freq"] = m.window_theta == 0 ? m.rope_theta : m.window_theta;
}

void put_phi3(Json& json, const DecoderSizes& m) {
  json["sliding_window"] = window_or_null(m);
  json["original_max_position_embeddings"] = m.rope_switch > 0 ? m.rope_switch : m.T;
  json["partial_rotary_factor"] = static_cast<double>(m.R) / static_cast<double>(m.D);
}

void put_smollm3(Json& json, const DecoderSizes& m) {
  put_llama(json, m);
  json["no_rope_layers"] =
      m.rope_layers.empty() ? Json(std::vector<int64_t>(static_cast<size_t>(m.L), 1)) : Json(m.rope_layers);
  json["use_sliding_window"] = largest_window(m) > 0;
  json["sliding_window"] = window_or_null(m);
  put_layer_types(json, m);
}

// Head: selects the class by its output head.
enum class Head : uint8_t { kVocabulary, kNone, kClasses };

struct Class {
  std::string_view family, model_type;
  std::string_view architecture;  // …ForCausalLM
  void (*put)(Json& json, const DecoderSizes& m);
};
constexpr Class kClasses[] = {
    {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM", put_deepseek_v2},
    {"gemma", "gemma", "GemmaForCausalLM", put_gemma1},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", put_gemma},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", put_gemma3},
    {"gpt-oss", "gpt_oss", "GptOssForCausalLM", put_gpt_oss},
    {"granite", "granite", "GraniteForCausalLM", put_granite},
    {"llama", "llama", "LlamaForCausalLM", put_llama},
    {"moe", "mixtral", "MixtralForCausalLM", put_mixtral},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", put_olmo2},
    {"phi3", "phi3", "Phi3ForCausalLM", put_phi3},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", put_windows},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", put_qwen2_moe},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", put_qwen3},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", put_qwen3_moe},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", put_smollm3},
};
// One family here is several classes in transformers.
constexpr Class kMistral = {"llama", "mistral", "MistralForCausalLM", put_mistral};
constexpr Class kOlmo3 = {"olmo2", "olmo3", "Olmo3ForCausalLM", put_olmo3};
constexpr Class kDeepseekV3 = {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", put_deepseek_v3};

const Class& class_of(const Class& usual, const DecoderSizes& m) {
  if (usual.family == "llama" && largest_window(m) > 0 && largest_window(m) < m.T) return kMistral;
  if (usual.family == "olmo2" && largest_window(m) > 0) return kOlmo3;
  return usual.family == "deepseek2" && m.experts.sigmoid ? kDeepseekV3 : usual;
}

Json head_of(std::string_view model_type, std::string_view architecture) {
  return {{"architectures", Json::array({architecture})}, {"model_type", model_type}};
}

// "Qwen3ForCausalLM" -> "Qwen3Model", "Qwen3ForSequenceClassification".
// Gemma 3's text classifier has a name of its own.
std::string architecture_of(std::string_view causal, Head head) {
  if (head == Head::kVocabulary) return std::string(causal);
  constexpr std::string_view kCausal = "ForCausalLM", kGpt2 = "LMHeadModel";
  std::string name(causal.substr(0, causal.size() - (causal.ends_with(kCausal) ? kCausal : kGpt2).size()));
  if (name == "Gemma3") name += "Text";
  return name + (head == Head::kNone ? "Model" : "ForSequenceClassification");
}

// Writes classifier settings; null: no padding token.
void put_classes(Json& json, const ExportedConfig& model, int64_t count) {
  if (count == 0) return;
  put_labels(json, model, count);
  json["pad_token_id"] = model.padding ? Json(*model.padding) : Json();
}

Json decoder_json(const Class& kind, const ExportedConfig& model, Json scaling) {
  const DecoderSizes& m = *model.decoder;
  const Head head = m.classes > 0 ? Head::kClasses : m.head ? Head::kVocabulary : Head::kNone;
  Json json = head_of(kind.model_type, architecture_of(kind.architecture, head));
  if (!m.causal) json["is_causal"] = false;
  json["vocab_size"] = m.V;
  json["hidden_size"] = m.C;
  json["intermediate_size"] = m.F;
  json["num_hidden_layers"] = m.L;
  json["num_attention_heads"] = m.H;
  json["num_key_value_heads"] = m.KV;
  json["head_dim"] = m.D;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = m.T;
  json["rms_norm_eps"] = m.norm_eps;
  json["tie_word_embeddings"] = m.tied;
  json["rope_theta"] = m.rope_theta;
  json["rope_scaling"] = std::move(scaling);
  DecoderSizes written = m;
  if (!m.causal)  // windows include the token at the window's distance
    for (int64_t& window : written.windows) window -= window > 0 ? 1 : 0;
  kind.put(json, written);
  put_classes(json, model, m.classes);
  return json;
}

// Checks that a reader would get the same model, or names the difference.
Status check_read_again(const Json& json, const ExportedConfig& model,
                        const std::optional<RopeFactors>& factors) {
  TSR_ASSIGN_OR_RETURN(HuggingfaceConfig again, read_huggingface_config(json));
  if (!model.decoder->head) again.config.flags["head"] = false;  // determined by tensors
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
std::vector<Json> scalings_of(const DecoderSizes& m, const std::optional<RopeFactors>& factors) {
  if (!factors) return {Json()};
  std::vector<Json> all;
  if (!factors->words.empty())
    if (Result<Json> words = parse_json(factors->words, "rope_scaling"); words.ok() && words->is_object())
      all.push_back(std::move(*words));
  const std::span<const float> values = factors->values.as<float>();
  if (m.rope_rows == 1 && m.rope_magnitude == 1 &&
      std::ranges::count(values, values[0]) == std::ssize(values))
    all.push_back({{"rope_type", "linear"}, {"factor", values[0]}});
  const auto first = values.first(static_cast<size_t>(m.R / 2)),
             last = values.last(static_cast<size_t>(m.R / 2));
  all.push_back({{"rope_type", "longrope"},
                 {"short_factor", std::vector<float>(first.begin(), first.end())},
                 {"long_factor", std::vector<float>(last.begin(), last.end())},
                 {"attention_factor", m.rope_magnitude},
                 {"original_max_position_embeddings", m.rope_switch > 0 ? m.rope_switch : m.T}});
  return all;
}

Result<Json> gpt2_json(const ExportedConfig& model) {
  const ModelConfig& config = model.config;
  const auto size = [&](const char* name, int64_t otherwise) {
    const auto found = config.sizes.find(name);
    return found == config.sizes.end() ? otherwise : found->second;
  };
  const auto real = [&](const char* name, double otherwise) {
    const auto found = config.reals.find(name);
    return found == config.reals.end() ? otherwise : found->second;
  };
  const auto flag = [&](const char* name) {
    const auto found = config.flags.find(name);
    return found == config.flags.end() || found->second;
  };
  const Head head = size("classes", 0) > 0 ? Head::kClasses : flag("head") ? Head::kVocabulary : Head::kNone;
  Json json = head_of("gpt2", architecture_of("GPT2LMHeadModel", head));
  if (!flag("causal")) json["is_causal"] = false;
  json["vocab_size"] = size("V", 0);
  json["n_positions"] = size("T", 0);
  json["n_ctx"] = size("T", 0);
  json["n_embd"] = size("C", 0);
  json["n_layer"] = size("L", 0);
  json["n_head"] = size("H", 0);
  json["n_inner"] = size("F", 4 * size("C", 0));
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = real("norm_eps", 1e-5);
  json["tie_word_embeddings"] = flag("tied");
  for (const char* const dropout : {"resid_pdrop", "embd_pdrop"}) json[dropout] = real("dropout", 0);
  json["attn_pdrop"] = 0.0;
  put_classes(json, model, size("classes", 0));
  return json;
}

}  // namespace

Result<Json> write_huggingface_config(const ExportedConfig& model,
                                      const std::optional<RopeFactors>& factors) {
  const std::string& family = model.config.family;
  if (family == "gpt2") return gpt2_json(model);
  if (model.encoder && family != "encoder") return write_huggingface_encoder(model);
  const auto found = std::ranges::find(kClasses, std::string_view(family), &Class::family);
  if (found == std::end(kClasses) || !model.decoder) {
    std::vector<std::string> known = {"bert", "distilbert", "gpt2", "modernbert", "nomic-bert", "roberta"};
    for (const Class& each : kClasses) known.emplace_back(each.family);
    return unsupported(format("a model of family '{}' cannot be written as a Hugging Face folder; known: {}",
                              family, join(known, ", ")));
  }
  const DecoderSizes& m = *model.decoder;
  if (m.R != m.D && family != "phi3" && family != "deepseek2")
    return unsupported(
        format("transformers' {} rotates whole heads of D = {}, this {} R = {} numbers of them",
               found->model_type, m.D, family, m.R));
  const Class& kind = class_of(*found, m);
  Status status;
  for (Json& scaling : scalings_of(m, factors)) {
    Json json = decoder_json(kind, model, std::move(scaling));
    status = check_read_again(json, model, factors);
    if (status.ok()) return json;
  }
  return status;
}

}  // namespace tessera
