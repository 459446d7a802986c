#include "serialize/export/sentence_files.h"

#include <algorithm>

#include "graph/base/text.h"
#include "serialize/export/safetensors_writer.h"
#include "serialize/import/sentence_modules.h"
#include "text/json.h"

namespace tessera {
namespace {

// Modules 0 and 1 are Transformer and Pooling.
std::string dense_folder(size_t module) { return format("{}_Dense", module + 2); }

std::string dense_config(int64_t in, int64_t out, bool bias) {
  const Json config = {{"in_features", in},
                       {"out_features", out},
                       {"bias", bias},
                       {"activation_function", "torch.nn.modules.linear.Identity"}};
  return config.dump(2) + "\n";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> sentence_files(const Model& model, int64_t channels, const DenseModules& dense,
                                                                std::string_view otherwise) {
  const auto value = [&](const char* key) {
    const auto found = model.metadata.find(key);
    return found == model.metadata.end() ? std::string() : found->second;
  };
  const std::string stated = value(kPoolingKey), settings = value(kSentenceSettingsKey);
  const std::string pooling = stated.empty() ? std::string(otherwise) : stated;
  if (pooling != "mean" && pooling != "cls" && pooling != "last") return {};
  Json modules = Json::array();
  const auto add = [&](const char* name, const std::string& path) {
    const auto number = static_cast<int64_t>(modules.size());
    modules.push_back({{"idx", number},
                       {"name", to_text(number)},
                       {"path", path},
                       {"type", std::string("sentence_transformers.models.") + name}});
  };
  add("Transformer", "");
  add("Pooling", "1_Pooling");
  for (size_t i = 0; i < dense.widths.size(); ++i) add("Dense", dense_folder(i));
  if (value(kNormalizeKey) == "1") add("Normalize", format("{}_Normalize", modules.size()));
  const Json config = {
      {"word_embedding_dimension", channels},          {"pooling_mode_cls_token", pooling == "cls"},
      {"pooling_mode_mean_tokens", pooling == "mean"}, {"pooling_mode_max_tokens", false},
      {"pooling_mode_mean_sqrt_len_tokens", false},    {"pooling_mode_weightedmean_tokens", false},
      {"pooling_mode_lasttoken", pooling == "last"}};
  std::vector<std::pair<std::string, std::string>> files = {{"modules.json", modules.dump(2) + "\n"},
                                                            {"1_Pooling/config.json", config.dump(2) + "\n"}};
  for (size_t i = 0; i < dense.widths.size(); ++i)
    files.emplace_back(dense_folder(i) + "/config.json",
                       dense_config(i == 0 ? channels : dense.widths[i - 1], dense.widths[i], dense.bias));
  if (const auto count = parse_i64(value(kEmbeddingTokensKey)))
    files.emplace_back("sentence_bert_config.json",
                       Json{{"max_seq_length", *count}, {"do_lower_case", false}}.dump(2) + "\n");
  if (!settings.empty()) files.emplace_back("config_sentence_transformers.json", settings + "\n");
  return files;
}

Result<std::vector<TensorFile>> dense_module_files(const DenseModules& dense, std::vector<TensorSource>& parameters) {
  std::vector<TensorFile> files;
  for (size_t i = 0; i < dense.widths.size(); ++i) {
    std::vector<TensorSource> tensors;
    for (const bool is_bias : {false, true}) {
      const auto found = std::ranges::find(parameters, format("dense.{}{}", i, is_bias ? ".bias" : ""), &TensorSource::name);
      if (found == parameters.end()) continue;
      found->name = is_bias ? "linear.bias" : "linear.weight";
      tensors.push_back(std::move(*found));
      parameters.erase(found);
    }
    TSR_ASSIGN_OR_RETURN(TensorFile file, safetensors_file(std::move(tensors), dense_folder(i) + "/model.safetensors"));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace tessera
