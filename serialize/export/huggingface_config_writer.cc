#include "serialize/export/huggingface_config_writer.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "graph/base/text.h"
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

// A whole number where it is one, as classes check it.
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

// ---- what each class has beside the common keys

void put_llama(Json& json, const DecoderSizes& m) {
  json["attention_bias"] = m.qkv_bias || m.o_bias;
  json["mlp_bias"] = m.mlp_bias;
}

void put_mistral(Json& json, const DecoderSizes& m) { json["sliding_window"] = window_or_null(m); }

void put_router(Json& json, const DecoderSizes& m, const char* experts) {
  json[experts] = m.E;
  json["num_experts_per_tok"] = m.K;
  json["router_aux_loss_coef"] = m.aux;
  json["output_router_logits"] = false;
}

void put_mixtral(Json& json, const DecoderSizes& m) {
  put_mistral(json, m);
  put_router(json, m, "num_local_experts");
}

// Windows of any layers.
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

void put_qwen3_moe(Json& json, const DecoderSizes& m) {
  json["attention_bias"] = m.qkv_bias || m.o_bias;
  json["use_sliding_window"] = largest_window(m) > 0;
  json["sliding_window"] = window_or_null(m);
  put_router(json, m, "num_experts");
  json["moe_intermediate_size"] = m.F;
  json["norm_topk_prob"] = m.normalize;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
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

struct Class {
  std::string_view family, model_type, architecture;
  void (*put)(Json& json, const DecoderSizes& m);
};
constexpr Class kClasses[] = {
    {"gemma2", "gemma2", "Gemma2ForCausalLM", put_gemma},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", put_gemma3},
    {"llama", "llama", "LlamaForCausalLM", put_llama},
    {"moe", "mixtral", "MixtralForCausalLM", put_mixtral},
    {"phi3", "phi3", "Phi3ForCausalLM", put_phi3},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", put_windows},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", put_qwen3},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", put_qwen3_moe},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", put_smollm3},
};
// A llama with windows is another class there.
constexpr Class kMistral = {"llama", "mistral", "MistralForCausalLM", put_mistral};

Json head_of(std::string_view model_type, std::string_view architecture) {
  return {{"architectures", Json::array({architecture})}, {"model_type", model_type}};
}

Json decoder_json(const Class& kind, const DecoderSizes& m, Json scaling) {
  Json json = head_of(kind.model_type, kind.architecture);
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
  kind.put(json, m);
  return json;
}

// Where the first difference is that changes a result; empty for none.
std::string difference(const DecoderSizes& a, const DecoderSizes& b, bool has_local_rotation) {
  struct Whole {
    const char* name;
    int64_t DecoderSizes::*member;
  };
  static constexpr Whole kWhole[] = {{"L", &DecoderSizes::L},
                                     {"C", &DecoderSizes::C},
                                     {"H", &DecoderSizes::H},
                                     {"KV", &DecoderSizes::KV},
                                     {"D", &DecoderSizes::D},
                                     {"F", &DecoderSizes::F},
                                     {"V", &DecoderSizes::V},
                                     {"T", &DecoderSizes::T},
                                     {"R", &DecoderSizes::R},
                                     {"E", &DecoderSizes::E},
                                     {"K", &DecoderSizes::K},
                                     {"rope_rows", &DecoderSizes::rope_rows},
                                     {"rope_switch", &DecoderSizes::rope_switch}};
  struct Real {
    const char* name;
    double DecoderSizes::*member;
  };
  static constexpr Real kReals[] = {
      {"norm_eps", &DecoderSizes::norm_eps},         {"rope_theta", &DecoderSizes::rope_theta},
      {"window_theta", &DecoderSizes::window_theta}, {"rope_magnitude", &DecoderSizes::rope_magnitude},
      {"softcap", &DecoderSizes::softcap},           {"logit_softcap", &DecoderSizes::logit_softcap}};
  struct Flag {
    const char* name;
    bool DecoderSizes::*member;
  };
  static constexpr Flag kFlags[] = {{"tied", &DecoderSizes::tied},
                                    {"qkv_bias", &DecoderSizes::qkv_bias},
                                    {"o_bias", &DecoderSizes::o_bias},
                                    {"mlp_bias", &DecoderSizes::mlp_bias},
                                    {"normalize", &DecoderSizes::normalize}};
  for (const Whole& it : kWhole)
    if (a.*it.member != b.*it.member) return format("{} = {}", it.name, a.*it.member);
  for (const Real& it : kReals)
    if (a.*it.member != b.*it.member) return format("{} = {}", it.name, a.*it.member);
  for (const Flag& it : kFlags)
    if (a.*it.member != b.*it.member) return format("{} = {}", it.name, a.*it.member ? 1 : 0);
  const auto scale = [](const DecoderSizes& m) {
    return m.attention_scale == 0 ? 1 / std::sqrt(static_cast<double>(m.D)) : m.attention_scale;
  };
  if (std::abs(scale(a) / scale(b) - 1) > 1e-12) return format("attention_scale = {}", a.attention_scale);
  for (size_t i = 0; i < static_cast<size_t>(a.L); ++i) {
    // A window of the whole context is none, unless it chooses the rotation.
    const auto window = [&](const DecoderSizes& m) {
      const int64_t found = m.windows.empty() ? 0 : m.windows[i];
      return found >= m.T && !has_local_rotation ? 0 : found;
    };
    if (window(a) != window(b)) return format("a window of {} in layer {}", window(a), i);
    const auto turns = [&](const DecoderSizes& m) { return m.rope_layers.empty() || m.rope_layers[i] != 0; };
    if (turns(a) != turns(b)) return format("rope_layers = {} in layer {}", turns(a) ? 1 : 0, i);
  }
  return {};
}

// What a reader makes of it is the model, or a status that says what is not.
Status check_read_again(const Json& json, const ExportedConfig& model,
                        const std::optional<RopeFactors>& factors) {
  TSR_ASSIGN_OR_RETURN(const HuggingfaceConfig again, read_huggingface_config(json));
  TSR_ASSIGN_OR_RETURN(const DecoderSizes sizes, decoder_sizes(again.config, model.family->decoder));
  std::string found = difference(*model.decoder, sizes, model.decoder->window_theta > 0);
  if (found.empty() && factors &&
      (!again.scaling || !std::ranges::equal(again.scaling->values().data, factors->values.data)))
    found = "the factors of its rotations";
  if (found.empty()) return {};
  return unsupported(format("transformers' {} has no word for {} of this {}",
                            json["model_type"].get<std::string>(), found, model.config.family));
}

// Objects of rope_scaling that may give the factors, best first.
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
  const auto tied = config.flags.find("tied");
  Json json = head_of("gpt2", "GPT2LMHeadModel");
  json["vocab_size"] = size("V", 0);
  json["n_positions"] = size("T", 0);
  json["n_ctx"] = size("T", 0);
  json["n_embd"] = size("C", 0);
  json["n_layer"] = size("L", 0);
  json["n_head"] = size("H", 0);
  json["n_inner"] = size("F", 4 * size("C", 0));
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = real("norm_eps", 1e-5);
  json["tie_word_embeddings"] = tied == config.flags.end() || tied->second;
  for (const char* const dropout : {"resid_pdrop", "embd_pdrop"}) json[dropout] = real("dropout", 0);
  json["attn_pdrop"] = 0.0;
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
  if (m.R != m.D && family != "phi3")
    return unsupported(
        format("transformers' {} rotates whole heads of D = {}, this {} R = {} numbers of them",
               found->model_type, m.D, family, m.R));
  const Class& kind =
      family == "llama" && largest_window(m) > 0 && largest_window(m) < m.T ? kMistral : *found;
  Status status;
  for (Json& scaling : scalings_of(m, factors)) {
    Json json = decoder_json(kind, m, std::move(scaling));
    status = check_read_again(json, model, factors);
    if (status.ok()) return json;
  }
  return status;
}

}  // namespace tessera
