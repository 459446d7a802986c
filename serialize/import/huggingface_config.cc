#include "serialize/import/huggingface_config.h"

#include <algorithm>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/huggingface_encoder_config.h"
#include "serialize/import/huggingface_reader.h"

namespace tessera {
namespace {

// Models that also read images or sounds nest the configuration of their text part in text_config, whose model_type is that of
// another class; these are the types of parts that older files leave out.
struct TextPart {
  std::string_view model_type, text_type;
  bool is_tied = true;  // where the file does not say
};
constexpr TextPart kTextParts[] = {{"gemma3", "gemma3_text"},
                                   {"gemma4", "gemma4_text"},
                                   {"gemma4_unified", "gemma4_unified_text"},
                                   {"kimi_k25", "deepseek_v3"},
                                   {"mistral3", "mistral"},
                                   {"qwen3_5", "qwen3_5_text", false},
                                   {"qwen3_5_moe", "qwen3_5_moe_text", false},
                                   {"qwen3_vl", "qwen3_vl_text"},
                                   {"qwen3_vl_moe", "qwen3_vl_moe_text"}};

// Tensors of the other parts, which are skipped, behind "model." or not.
constexpr std::string_view kOtherParts[] = {"audio_tower.",  "embed_audio.",  "embed_vision.", "mm_projector.", "multi_modal_projector.",
                                            "vision_model.", "vision_tower.", "visual."};

// A class and the family that reads it.
struct KnownClass {
  const ModelFamily* family = nullptr;
  const HuggingfaceClass* described = nullptr;
};

KnownClass find_class(std::string_view model_type, const Json& json) {
  const auto count = json.find("num_local_experts");
  const bool has_experts = count == json.end() || !count->is_number() || *count > 0;
  for (const ModelFamily& family : all_model_families())
    for (const HuggingfaceClass& each : family.classes)
      if (each.model_type == model_type && each.has_experts.value_or(has_experts) == has_experts) return {&family, &each};
  return {};
}

std::string known_classes() {
  std::vector<std::string> known = huggingface_encoders();
  for (const ModelFamily& family : all_model_families())
    for (const HuggingfaceClass& each : family.classes) known.emplace_back(each.model_type);
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());  // two families share a model_type
  return join(known, ", ") + "; and models with a text_config of one of these";
}

bool has_text_part(const Json& json, std::string_view model_type) {
  const auto text = json.find("text_config");
  return (text != json.end() && text->is_object()) ||
         std::ranges::find(kTextParts, model_type, &TextPart::model_type) != std::end(kTextParts);
}

Result<HuggingfaceConfig> read_text_part(const Json& json, const std::string& model_type) {
  JsonFields fields(json, "config.json");
  const Json* const inner = fields.object("text_config");
  TSR_RETURN_IF_ERROR(fields.status());
  Json text = inner == nullptr ? Json::object() : *inner;
  const auto part = std::ranges::find(kTextParts, std::string_view(model_type), &TextPart::model_type);
  if (!text.contains("model_type") && part != std::end(kTextParts)) text["model_type"] = part->text_type;
  if (text.contains("text_config"))
    return Status(StatusCode::kUnsupported, "config.json: text_config has a text_config, wanted the configuration of a decoder");
  for (const char* const key :
       {"architectures", "eos_token_id", "id2label", "num_labels", "problem_type", "quantization_config"})
    if (json.contains(key) && !text.contains(key)) text[key] = json[key];
  // The whole model's counts; a head in the file that differs from the embedding is used in any case.
  if (json.contains("tie_word_embeddings"))
    text["tie_word_embeddings"] = json["tie_word_embeddings"];
  else if (!text.contains("tie_word_embeddings"))
    text["tie_word_embeddings"] = part == std::end(kTextParts) || part->is_tied;
  Result<HuggingfaceConfig> config = read_huggingface_config(text);
  if (!config.ok()) return config.status().with_context(format("text_config of a {}", quote(model_type, 60)));
  config->model_type = model_type;
  for (const std::string_view other : kOtherParts) {
    config->ignored.emplace_back(other);
    config->ignored.push_back(format("model.{}", other));
  }
  for (const char* const key : {"audio_config", "vision_config"})
    if (json.contains(key)) config->used.emplace_back(key, "left out, with its weights: the model reads texts alone");
  return config;
}

}  // namespace

Result<HuggingfaceConfig> read_huggingface_config(const Json& json) {
  if (!json.is_object())
    return Status(StatusCode::kCorrupt, format("config.json is {}, wanted an object", quote_json(json, 60)));
  HuggingfaceReader r(json);
  r.out.model_type = r.fields.text("model_type");
  TSR_RETURN_IF_ERROR(r.fields.status());
  if (has_text_part(json, r.out.model_type)) return read_text_part(json, r.out.model_type);
  const bool is_encoder = is_huggingface_encoder(r.out.model_type);
  const KnownClass found = is_encoder ? KnownClass() : find_class(r.out.model_type, json);
  if (!is_encoder && found.described == nullptr)
    return Status(StatusCode::kUnsupported, format("config.json: model_type is '{}'; known: {}",
                                                   quote(r.out.model_type, 80), known_classes()));
  if (const Json* quantization = r.fields.any("quantization_config")) {
    TSR_ASSIGN_OR_RETURN(r.out.quantization, read_folder_quantization(*quantization));
  }
  if (is_encoder) {
    read_encoder(r.fields, r.out);
  } else {
    r.out.config.family = found.family->name;
    found.described->keys(r);
    r.read_direction();
    r.read_class(found.described->padding);
  }
  r.read_end_ids();
  TSR_RETURN_IF_ERROR(r.fields.status());
  r.out.used = r.fields.used();
  r.out.unused = r.fields.unused();
  return std::move(r.out);
}

}  // namespace tessera
