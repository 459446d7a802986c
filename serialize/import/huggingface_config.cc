#include "serialize/import/huggingface_config.h"

#include <algorithm>

#include "graph/base/text.h"
#include "serialize/import/huggingface_classes.h"
#include "serialize/import/huggingface_encoder_config.h"

namespace tessera {
namespace {

struct Class {
  std::string_view model_type;
  void (*read)(HuggingfaceReader& r);
  std::optional<int64_t> padding = {};  // pad_token_id of the class
};
constexpr Class kClasses[] = {
    {"bert", read_encoder},
    {"camembert", read_encoder},
    {"deepseek_v2", read_deepseek_v2},
    {"deepseek_v3", read_deepseek_v3},
    {"distilbert", read_encoder},
    {"gemma", read_gemma, 0},
    {"gemma2", read_gemma2, 0},
    {"gemma3_text", read_gemma3, 0},
    {"gpt2", read_gpt2},
    {"gpt_oss", read_gpt_oss},
    {"granite", read_granite},
    {"llama", read_llama},
    {"mistral", read_mistral},
    {"mixtral", read_mixtral},
    {"modernbert", read_encoder},
    {"nomic_bert", read_encoder},
    {"olmo2", read_olmo2, 1},
    {"olmo3", read_olmo3, 1},
    {"phi3", read_phi3, 32000},
    {"qwen2", read_qwen2},
    {"qwen2_moe", read_qwen2_moe},
    {"qwen3", read_qwen3},
    {"qwen3_moe", read_qwen3_moe},
    {"roberta", read_encoder},
    {"smollm3", read_smollm3, 128004},
    {"xlm-roberta", read_encoder},
};

// A model that also reads images, and the type of its text part, whose configuration is nested.
constexpr std::string_view kWithPictures = "gemma3", kTextPart = "gemma3_text";

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
  const auto found = std::ranges::find(kClasses, std::string_view(r.out.model_type), &Class::model_type);
  if (found == std::end(kClasses)) {
    std::vector<std::string> known;
    for (const Class& each : kClasses) known.emplace_back(each.model_type);
    known.emplace_back(kWithPictures);
    return Status(StatusCode::kUnsupported,
                  format("config.json: model_type is '{}'; known: {}", r.out.model_type, join(known, ", ")));
  }
  if (const Json* quantization = r.fields.any("quantization_config")) {
    TSR_ASSIGN_OR_RETURN(r.out.quantization, read_folder_quantization(*quantization));
  }
  found->read(r);
  if (!is_huggingface_encoder(r.out.model_type)) {
    r.read_direction();
    r.read_class(found->padding);
  }
  r.read_end_ids();
  TSR_RETURN_IF_ERROR(r.fields.status());
  r.out.used = r.fields.used();
  r.out.unused = r.fields.unused();
  return std::move(r.out);
}

}  // namespace tessera
