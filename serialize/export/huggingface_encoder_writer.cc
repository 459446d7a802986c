#include "serialize/export/huggingface_encoder_writer.h"

#include <algorithm>
#include <string_view>

#include "graph/base/text.h"
#include "serialize/class_head.h"
#include "serialize/import/huggingface_config.h"
#include "serialize/import/huggingface_encoder_tensors.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

void put_common(Json& json, const EncoderSizes& m) {
  json["vocab_size"] = m.V;
  json["hidden_size"] = m.C;
  json["intermediate_size"] = m.F;
  json["num_hidden_layers"] = m.L;
  json["num_attention_heads"] = m.H;
  json["max_position_embeddings"] = m.T + m.position_offset;
}

// ---- keys of each class

void put_bert(Json& json, const EncoderSizes& m) {
  put_common(json, m);
  json["type_vocab_size"] = m.Y;
  json["layer_norm_eps"] = m.norm_eps;
  json["hidden_act"] = "gelu";
}

void put_distilbert(Json& json, const EncoderSizes& m) {
  json["vocab_size"] = m.V;
  json["dim"] = m.C;
  json["hidden_dim"] = m.F;
  json["n_layers"] = m.L;
  json["n_heads"] = m.H;
  json["max_position_embeddings"] = m.T;
  json["activation"] = "gelu";
}

int64_t largest_window(const EncoderSizes& m) {
  return m.windows.empty() ? 0 : *std::ranges::max_element(m.windows);
}

void put_modernbert(Json& json, const EncoderSizes& m) {
  put_common(json, m);
  json["norm_eps"] = m.norm_eps;
  json["hidden_activation"] = "gelu";
  json["decoder_bias"] = m.output_bias;
  json["classifier_bias"] = m.head_bias;
  json["classifier_pooling"] = m.class_mean ? "mean" : "cls";
  for (const char* const key : {"norm_bias", "attention_bias", "mlp_bias"}) json[key] = false;
  Json types = Json::array();
  for (const int64_t window : m.windows) types.push_back(window > 0 ? "sliding_attention" : "full_attention");
  json["layer_types"] = std::move(types);
  json["local_attention"] = std::max<int64_t>(2, 2 * (largest_window(m) - 1));
  json["global_rope_theta"] = m.rope_theta;
  json["local_rope_theta"] = m.window_theta;
}

void put_nomic_bert(Json& json, const EncoderSizes& m) {
  put_bert(json, m);
  json["hidden_act"] = "silu";
  json["pad_token_id"] = 0;
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", m.rope_theta}};
}

struct Class {
  std::string_view family, model_type, prefix;
  void (*put)(Json& json, const EncoderSizes& m);
};
constexpr Class kClasses[] = {
    {"bert", "bert", "Bert", put_bert},
    {"distilbert", "distilbert", "DistilBert", put_distilbert},
    {"modernbert", "modernbert", "ModernBert", put_modernbert},
    {"nomic-bert", "nomic_bert", "NomicBert", put_nomic_bert},
    {"roberta", "roberta", "Roberta", put_bert},
};

const Class* find_class(std::string_view family) {
  const auto found = std::ranges::find(kClasses, family, &Class::family);
  return found == std::end(kClasses) ? nullptr : &*found;
}

// Describes the first difference that affects results; empty: none.
std::string difference(const EncoderSizes& a, const EncoderSizes& b) {
  struct Whole {
    const char* name;
    int64_t EncoderSizes::*member;
  };
  static constexpr Whole kWhole[] = {
      {"L", &EncoderSizes::L}, {"C", &EncoderSizes::C}, {"H", &EncoderSizes::H},
      {"F", &EncoderSizes::F}, {"V", &EncoderSizes::V}, {"T", &EncoderSizes::T},
      {"N", &EncoderSizes::N}, {"Y", &EncoderSizes::Y}, {"position_offset", &EncoderSizes::position_offset}};
  struct Real {
    const char* name;
    double EncoderSizes::*member;
  };
  static constexpr Real kReals[] = {{"norm_eps", &EncoderSizes::norm_eps},
                                    {"rope_theta", &EncoderSizes::rope_theta},
                                    {"window_theta", &EncoderSizes::window_theta}};
  struct Flag {
    const char* name;
    bool EncoderSizes::*member;
  };
  static constexpr Flag kFlags[] = {{"tied", &EncoderSizes::tied},
                                    {"mlm", &EncoderSizes::mlm},
                                    {"class_mean", &EncoderSizes::class_mean},
                                    {"head_bias", &EncoderSizes::head_bias},
                                    {"output_bias", &EncoderSizes::output_bias}};
  for (const Whole& it : kWhole)
    if (a.*it.member != b.*it.member) return format("{} = {}", it.name, a.*it.member);
  for (const Real& it : kReals)
    if (a.*it.member != b.*it.member) return format("{} = {}", it.name, a.*it.member);
  for (const Flag& it : kFlags)
    if (a.*it.member != b.*it.member && (a.mlm || std::string_view(it.name) != "tied"))
      return format("{} = {}", it.name, a.*it.member ? 1 : 0);
  for (size_t i = 0; i < a.windows.size(); ++i)
    if (a.windows[i] != b.windows[i]) return format("a window of {} in layer {}", a.windows[i], i);
  return {};
}

}  // namespace

void put_labels(Json& json, const ExportedConfig& model, int64_t count) {
  Json names = Json::object(), numbers = Json::object();
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string label = at < model.labels.size() ? model.labels[at] : format("LABEL_{}", i);
    names[to_text(i)] = label;
    numbers[label] = i;
  }
  json["id2label"] = std::move(names);
  json["label2id"] = std::move(numbers);
  if (!model.problem_type.empty()) json["problem_type"] = model.problem_type;
  if (model.class_activation.empty()) return;
  const auto known = class_activation_from_name(model.class_activation);
  json["sentence_transformers"] = {
      {"activation_fn", known ? std::string(torch_module(*known)) : model.class_activation}};
}

Result<Json> write_huggingface_encoder(const ExportedConfig& model) {
  const Class* const kind = find_class(model.config.family);
  if (kind == nullptr || !model.encoder)
    return unsupported(
        format("a model of family '{}' cannot be written as a Hugging Face folder", model.config.family));
  const EncoderSizes& m = *model.encoder;
  const std::string_view head = m.mlm ? "ForMaskedLM" : m.N > 0 ? "ForSequenceClassification" : "Model";
  Json json = {{"architectures", Json::array({std::string(kind->prefix) + std::string(head)})},
               {"model_type", kind->model_type}};
  kind->put(json, m);
  json["tie_word_embeddings"] = m.tied;
  if (m.position_offset > 0) json["pad_token_id"] = m.position_offset - 1;
  if (m.N > 0) put_labels(json, model, m.N);
  TSR_ASSIGN_OR_RETURN(const HuggingfaceConfig again, read_huggingface_config(json));
  TSR_ASSIGN_OR_RETURN(const EncoderSizes sizes, encoder_sizes(again.config, model.family->encoder));
  if (const std::string found = difference(m, sizes); !found.empty())
    return unsupported(format("transformers' {} has no word for {} of this {}", kind->model_type, found,
                              model.config.family));
  return json;
}

void name_encoder_tensors(std::vector<TensorSource>& tensors, const ExportedConfig& model) {
  const EncoderSizes& m = *model.encoder;
  if (!m.mlm && m.N == 0) return;
  // The projection's class has its own bias, the family's if the projection is tied.
  const std::string_view bias = decoder_bias(model.config.family);
  if (m.mlm && !m.tied && !bias.empty()) {
    const std::string family_name = model.family->huggingface.find("output.bias")->tensor;
    const auto named = std::ranges::find(tensors, family_name, &TensorSource::name);
    if (named != tensors.end()) {
      TensorSource copy = *named;
      copy.name = bias;
      tensors.push_back(std::move(copy));
    }
  }
  const std::string prefix(encoder_prefix(find_class(model.config.family)->model_type));
  constexpr std::string_view kHeads[] = {"cls.",     "lm_head.",    "vocab_",         "head.",
                                         "decoder.", "classifier.", "pre_classifier."};
  for (TensorSource& tensor : tensors)
    if (std::ranges::none_of(kHeads, [&](std::string_view head) { return tensor.name.starts_with(head); }))
      tensor.name = prefix + tensor.name;
}

}  // namespace tessera
