#include "serialize/import/gguf_metadata.h"

#include <algorithm>
#include <charconv>
#include <variant>

#include "graph/base/text.h"
#include "serialize/class_head.h"
#include "serialize/generation_config.h"
#include "serialize/import/sentence_modules.h"
#include "text/chat_template.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr std::string_view kOwn[] = {kPoolingKey,      kNormalizeKey,   kEmbeddingTokensKey,
                                     kSentenceSettingsKey, kProblemTypeKey, kClassActivationKey};

// 0.6 for a number stored as 0.6f.
double shortest(double stored) {
  const auto single = static_cast<float>(stored);
  if (static_cast<double>(single) != stored) return stored;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, single).ptr;
  double value = stored;
  std::from_chars(text, end, value);
  return value;
}

// Keys general.sampling.*, and the rest of a generation_config.json, as one JSON object.
Status read_sampling(const GgufFile& file, std::map<std::string, std::string>& metadata) {
  Json values = Json::object();
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kSamplingPrefix)) continue;
    if (std::holds_alternative<uint64_t>(value) || std::holds_alternative<int64_t>(value)) {
      TSR_ASSIGN_OR_RETURN(values[key], file.integer(key));
    } else if (std::holds_alternative<double>(value)) {
      TSR_ASSIGN_OR_RETURN(const double real, file.real(key));
      values[key] = shortest(real);
    } else if (std::holds_alternative<bool>(value)) {
      TSR_ASSIGN_OR_RETURN(values[key], file.flag(key));
    } else if (std::holds_alternative<std::string>(value)) {
      TSR_ASSIGN_OR_RETURN(values[key], file.text(key));
    }
  }
  const std::string rest_key = format("{}{}", kOwnGgufPrefix, kGenerationConfigKey);
  TSR_ASSIGN_OR_RETURN(const std::string rest, file.text(rest_key, ""));
  if (!rest.empty()) {
    TSR_ASSIGN_OR_RETURN(const Json json, parse_json(rest, rest_key));
    if (!json.is_object())
      return Status(StatusCode::kCorrupt,
                    format("{} is {}, wanted a JSON object", rest_key, quote_json(json, 60)));
    for (const auto& [key, value] : json.items())
      if (!values.contains(key)) values[key] = value;
  }
  if (!values.empty()) metadata[std::string(kGenerationConfigKey)] = dump(values);
  return {};
}

// Chat templates: tokenizer.chat_template and tokenizer.chat_template.NAME.
Status read_texts(const GgufFile& file, std::map<std::string, std::string>& metadata) {
  for (const auto& [key, value] : file.metadata()) {
    constexpr std::string_view kGeneral = "general.", kTokenizer = "tokenizer.";
    const std::string_view name = std::string_view(key).substr(std::min(kTokenizer.size(), key.size()));
    const bool is_template = key.starts_with(kTokenizer) &&
                             (name == kChatTemplateKey || name.starts_with(format("{}.", kChatTemplateKey)));
    if (!std::holds_alternative<std::string>(value) || key.starts_with(kSamplingPrefix)) continue;
    if (is_template) {
      TSR_ASSIGN_OR_RETURN(metadata[std::string(name)], file.text(key));
    } else if (key.starts_with(kGeneral)) {
      TSR_ASSIGN_OR_RETURN(metadata[key.substr(kGeneral.size())], file.text(key));
    }
  }
  return {};
}

// "rank" states where classes are read, not how vectors are pooled.
Status read_pooling(const GgufFile& file, std::string_view architecture,
                    std::map<std::string, std::string>& metadata) {
  const std::string key = format("{}.pooling_type", architecture);
  if (!file.has(key)) return {};
  TSR_ASSIGN_OR_RETURN(const int64_t pooling, file.integer(key));
  if (pooling < 0 || pooling >= std::ssize(kGgufPoolings))
    return Status(StatusCode::kUnsupported,
                  format("{} is {}; known: 0 none, 1 mean, 2 cls, 3 last, 4 rank", key, pooling));
  const std::string_view name = kGgufPoolings[static_cast<size_t>(pooling)];
  if (pooling != kGgufRankPooling || !file.tensors().contains("cls.output.weight")) metadata[kPoolingKey] = name;
  return {};
}

}  // namespace

constexpr std::span<const std::string_view> kOwnGgufKeys = kOwn;

Status read_gguf_metadata(const GgufFile& file, std::string_view architecture,
                          std::map<std::string, std::string>& metadata) {
  TSR_RETURN_IF_ERROR(read_sampling(file, metadata));
  TSR_RETURN_IF_ERROR(read_texts(file, metadata));
  TSR_RETURN_IF_ERROR(read_pooling(file, architecture, metadata));
  for (const std::string_view name : kOwn) {
    TSR_ASSIGN_OR_RETURN(const std::string value, file.text(format("{}{}", kOwnGgufPrefix, name), ""));
    if (!value.empty()) metadata[std::string(name)] = value;
  }
  metadata["source_format"] = "gguf";
  return {};
}

}  // namespace tessera
