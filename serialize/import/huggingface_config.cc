#include "serialize/import/huggingface_config.h"

#include <algorithm>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/huggingface_encoder_config.h"
#include "serialize/import/huggingface_reader.h"

namespace tessera {
namespace {

// A model that also reads images, and the type of its text part, whose configuration is nested.
constexpr std::string_view kWithPictures = "gemma3", kTextPart = "gemma3_text";

// A class and the family that reads it.
struct KnownClass {
  const ModelFamily* family = nullptr;
  const HuggingfaceClass* described = nullptr;
};

KnownClass find_class(std::string_view model_type) {
  for (const ModelFamily& family : all_model_families())
    for (const HuggingfaceClass& each : family.classes)
      if (each.model_type == model_type) return {&family, &each};
  return {};
}

std::string known_classes() {
  std::vector<std::string> known = huggingface_encoders();
  for (const ModelFamily& family : all_model_families())
    for (const HuggingfaceClass& each : family.classes) known.emplace_back(each.model_type);
  known.emplace_back(kWithPictures);
  std::ranges::sort(known);
  return join(known, ", ");
}

Result<HuggingfaceConfig> read_text_part(const Json& json) {
  JsonFields fields(json, "config.json");
  const Json* const inner = fields.object("text_config");
  TSR_RETURN_IF_ERROR(fields.status());
  Json text = inner == nullptr ? Json::object() : *inner;
  text["model_type"] = kTextPart;
  for (const char* const key : {"architectures", "eos_token_id", "id2label", "num_labels", "problem_type",
                                "quantization_config", "tie_word_embeddings"})
    if (json.contains(key) && !text.contains(key)) text[key] = json[key];
  TSR_ASSIGN_OR_RETURN(HuggingfaceConfig config, read_huggingface_config(text));
  config.model_type = kWithPictures;
  config.ignored.insert(config.ignored.end(), {"vision_tower.", "multi_modal_projector.",
                                               "model.vision_tower.", "model.multi_modal_projector."});
  config.used.emplace_back("vision_config", "left out, with its weights: the model reads texts alone");
  return config;
}

}  // namespace

Result<HuggingfaceConfig> read_huggingface_config(const Json& json) {
  if (!json.is_object())
    return Status(StatusCode::kCorrupt, format("config.json is {}, wanted an object", quote_json(json, 60)));
  HuggingfaceReader r(json);
  r.out.model_type = r.fields.text("model_type");
  TSR_RETURN_IF_ERROR(r.fields.status());
  if (r.out.model_type == kWithPictures) return read_text_part(json);
  const bool is_encoder = is_huggingface_encoder(r.out.model_type);
  const KnownClass found = is_encoder ? KnownClass() : find_class(r.out.model_type);
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
