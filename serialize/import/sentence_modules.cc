#include "serialize/import/sentence_modules.h"

#include <filesystem>
#include <string_view>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/models/dense_modules.h"
#include "serialize/import/json_fields.h"
#include "serialize/model.h"
#include "text/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr size_t kMostModules = 64;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<Json> read_json(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const auto file, open_file(path));
  if (file->size() > kMostBytes)
    return Status(StatusCode::kCorrupt,
                  format("{} has {} bytes, wanted at most {}", path, file->size(), kMostBytes));
  std::string text(static_cast<size_t>(file->size()), '\0');
  TSR_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return parse_json(text, path);
}

struct Mode {
  std::string_view key, name;  // name: ours; empty: unsupported
};
constexpr Mode kModes[] = {
    {"pooling_mode_cls_token", "cls"},         {"pooling_mode_mean_tokens", "mean"},
    {"pooling_mode_lasttoken", "last"},        {"pooling_mode_max_tokens", ""},
    {"pooling_mode_mean_sqrt_len_tokens", ""}, {"pooling_mode_weightedmean_tokens", ""}};

Status read_pooling(const std::string& path, int64_t channels, std::map<std::string, std::string>& metadata) {
  TSR_ASSIGN_OR_RETURN(const Json json, read_json(path));
  if (!json.is_object())
    return Status(StatusCode::kCorrupt, format("{} is {}, wanted an object", path, quote_json(json, 60)));
  JsonFields fields(json, path);
  const int64_t width = fields.size("word_embedding_dimension", fields.size("embedding_dimension", channels));
  if (width != channels)
    fields.fail(
        StatusCode::kCorrupt,
        format("word_embedding_dimension is {}, the model's vectors have {} numbers", width, channels));
  std::vector<std::string> chosen;
  const std::string word = fields.text("pooling_mode", "");
  for (const Mode& mode : kModes) {
    if (!fields.flag(mode.key, false)) continue;
    if (mode.name.empty())
      fields.fail(StatusCode::kUnsupported,
                  format("{} is true; vectors are pooled by cls, mean or lasttoken", mode.key));
    chosen.emplace_back(mode.name);
  }
  if (!word.empty()) {
    if (word != "mean" && word != "cls" && word != "lasttoken")
      fields.fail(
          StatusCode::kUnsupported,
          format("pooling_mode is '{}'; vectors are pooled by cls, mean or lasttoken", quote(word, 40)));
    chosen.emplace_back(word == "lasttoken" ? "last" : word);
  }
  if (chosen.size() != 1)
    fields.fail(StatusCode::kUnsupported, format("{} kinds of pooling are true, wanted one", chosen.size()));
  TSR_RETURN_IF_ERROR(fields.status());
  metadata[kPoolingKey] = chosen[0];
  return {};
}

// "sentence_transformers.models.Pooling" -> "Pooling"
std::string_view class_name(std::string_view type) { return type.substr(type.rfind('.') + 1); }

// Appends a module between Pooling and Normalize.
Status read_dense(const std::string& where, const std::string& folder, int64_t channels,
                  const std::map<std::string, std::string>& metadata, std::vector<DenseModule>& dense) {
  const bool is_after_pooling = metadata.contains(kPoolingKey);
  if (!is_after_pooling || metadata.contains(kNormalizeKey))
    return Status(StatusCode::kUnsupported, format("{} has a module Dense {}; wanted between Pooling and Normalize", where,
                                                   is_after_pooling ? "after Normalize" : "before Pooling"));
  if (std::ssize(dense) == kMostDenseModules)
    return Status(StatusCode::kUnsupported, format("{} has more than {} Dense modules", where, kMostDenseModules));
  TSR_ASSIGN_OR_RETURN(DenseModule module, read_dense_module(folder, dense.empty() ? channels : dense.back().width));
  dense.push_back(std::move(module));
  return {};
}

Status read_module(const std::string& folder, const Json& module, int64_t channels,
                   std::map<std::string, std::string>& metadata, std::vector<DenseModule>& dense) {
  const std::string where = folder + "/modules.json";
  if (!module.is_object())
    return Status(StatusCode::kCorrupt,
                  format("{} has {}, wanted a type and a path", where, quote_json(module, 60)));
  JsonFields fields(module, where);
  const std::string type = fields.text("type"), path = fields.text("path", "");
  if (path.find('/') != path.npos || path.find('\\') != path.npos || path.find('\0') != path.npos ||
      path == "..")
    fields.fail(StatusCode::kCorrupt,
                format("path is '{}', wanted the name of a folder in its folder", quote(path, 60)));
  TSR_RETURN_IF_ERROR(fields.status());
  const std::string_view name = class_name(type);
  if (name == "Transformer") return {};
  if (name == "Normalize") {
    metadata[kNormalizeKey] = "1";
    return {};
  }
  if (name == "Dense") return read_dense(where, folder + "/" + path, channels, metadata, dense);
  if (name == "Pooling") {
    const std::string config = folder + "/" + (path.empty() ? "" : path + "/") + "config.json";
    if (!exists(config))
      return Status(StatusCode::kNotFound, format("{} is missing: {} names its folder", config, where));
    return read_pooling(config, channels, metadata);
  }
  return Status(
      StatusCode::kUnsupported,
      format("{} has a module '{}'; known: Transformer, Pooling, Dense, Normalize", where, quote(type, 80)));
}

}  // namespace

Result<std::vector<DenseModule>> read_sentence_modules(const std::string& folder, int64_t channels,
                                                       std::map<std::string, std::string>& metadata) {
  std::vector<DenseModule> dense;
  const std::string modules_path = folder + "/modules.json", pooling = folder + "/1_Pooling/config.json",
                    settings = folder + "/sentence_bert_config.json";
  if (exists(modules_path)) {
    TSR_ASSIGN_OR_RETURN(const Json modules, read_json(modules_path));
    if (!modules.is_array() || modules.size() > kMostModules)
      return Status(StatusCode::kCorrupt,
                    format("{} is {}, wanted a list of modules", modules_path, quote_json(modules, 60)));
    for (const Json& module : modules) TSR_RETURN_IF_ERROR(read_module(folder, module, channels, metadata, dense));
  } else if (exists(pooling)) {
    TSR_RETURN_IF_ERROR(read_pooling(pooling, channels, metadata));
  }
  if (const std::string prompts = folder + "/config_sentence_transformers.json"; exists(prompts)) {
    TSR_ASSIGN_OR_RETURN(const Json json, read_json(prompts));
    if (json.is_object() && json.contains("default_prompt_name") && !json["default_prompt_name"].is_null())
      return Status(
          StatusCode::kUnsupported,
          format("{}: default_prompt_name is {}; a prompt is the caller's to put before texts: make it null",
                 prompts, quote_json(json["default_prompt_name"], 60)));
    metadata[kSentenceSettingsKey] = dump(json);
  }
  if (!exists(settings)) return dense;
  TSR_ASSIGN_OR_RETURN(const Json json, read_json(settings));
  if (!json.is_object())
    return Status(StatusCode::kCorrupt, format("{} is {}, wanted an object", settings, quote_json(json, 60)));
  JsonFields fields(json, settings);
  const int64_t tokens = fields.integer("max_seq_length", 0, 0, int64_t{1} << 30);
  fields.wants("do_lower_case", false, "texts as they are given");
  TSR_RETURN_IF_ERROR(fields.status());
  if (tokens > 0) metadata[kEmbeddingTokensKey] = to_text(tokens);
  return dense;
}

}  // namespace tessera
