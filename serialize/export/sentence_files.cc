#include "serialize/export/sentence_files.h"

#include "graph/base/text.h"
#include "serialize/import/sentence_modules.h"
#include "text/json.h"

namespace tessera {

std::vector<std::pair<std::string, std::string>> sentence_files(const Model& model, int64_t channels) {
  const auto value = [&](const char* key) {
    const auto found = model.metadata.find(key);
    return found == model.metadata.end() ? std::string() : found->second;
  };
  const std::string pooling = value(kPoolingKey), settings = value(kSentenceSettingsKey);
  if (pooling != "mean" && pooling != "cls" && pooling != "last") return {};
  Json modules = Json::array();
  const auto add = [&](const char* name, const char* path) {
    const auto number = static_cast<int64_t>(modules.size());
    modules.push_back({{"idx", number},
                       {"name", to_text(number)},
                       {"path", path},
                       {"type", std::string("sentence_transformers.models.") + name}});
  };
  add("Transformer", "");
  add("Pooling", "1_Pooling");
  if (value(kNormalizeKey) == "1") add("Normalize", "2_Normalize");
  const Json config = {
      {"word_embedding_dimension", channels},          {"pooling_mode_cls_token", pooling == "cls"},
      {"pooling_mode_mean_tokens", pooling == "mean"}, {"pooling_mode_max_tokens", false},
      {"pooling_mode_mean_sqrt_len_tokens", false},    {"pooling_mode_weightedmean_tokens", false},
      {"pooling_mode_lasttoken", pooling == "last"}};
  std::vector<std::pair<std::string, std::string>> files = {{"modules.json", modules.dump(2) + "\n"},
                                                            {"1_Pooling/config.json", config.dump(2) + "\n"}};
  if (const auto count = parse_i64(value(kEmbeddingTokensKey)))
    files.emplace_back("sentence_bert_config.json",
                       Json{{"max_seq_length", *count}, {"do_lower_case", false}}.dump(2) + "\n");
  if (!settings.empty()) files.emplace_back("config_sentence_transformers.json", settings + "\n");
  return files;
}

}  // namespace tessera
