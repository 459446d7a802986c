#include "serialize/export/huggingface_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "graph/base/text.h"
#include "serialize/export/sentencepiece_file.h"
#include "serialize/export/tokenizer_json_writer.h"

namespace tessera {
namespace {

Json id_or_null(int32_t id) { return id < 0 ? Json() : Json(id); }

// One token, or a list of all end tokens, EOS first.
Json end_ids(const TokenizerData& data) {
  std::vector<int32_t> ids;
  if (data.eos >= 0) ids.push_back(data.eos);
  for (const int32_t id : data.end_ids)
    if (id != data.eos) ids.push_back(id);
  return ids.empty() ? Json() : ids.size() == 1 ? Json(ids[0]) : Json(ids);
}

std::string context_of(const Model& model) {
  const auto context = model.metadata.find("context_length");
  return context == model.metadata.end() ? std::string() : context->second;
}

// A text, or a list of named texts if there are several; null: none.
Json chat_templates(const Model& model) {
  constexpr std::string_view kDefault = "chat_template", kNamed = "chat_template.";
  Json list = Json::array();
  for (const auto& [key, text] : model.metadata)
    if (key == kDefault)
      list.push_back({{"name", "default"}, {"template", text}});
    else if (key.starts_with(kNamed))
      list.push_back({{"name", key.substr(kNamed.size())}, {"template", text}});
  if (list.empty()) return {};
  return list.size() == 1 && list[0]["name"] == "default" ? list[0]["template"] : list;
}

Json tokenizer_config(const TokenizerData& data, Json templates, const std::string& context) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const std::pair<const char*, int32_t> special[] = {
      {"bos_token", data.bos}, {"eos_token", data.eos}, {"unk_token", data.unknown}, {"pad_token", data.pad}};
  for (const auto& [name, id] : special)
    if (id >= 0) config[name] = data.tokens[static_cast<size_t>(id)];
  // Token names of BERT's and RoBERTa's relatives.
  const auto has = [&](const char* token) {
    return std::ranges::find(data.tokens, std::string_view(token)) != data.tokens.end();
  };
  const bool is_roberta = has("<mask>") && has("<s>") && has("</s>");
  if ((has("[CLS]") && has("[SEP]") && has("[MASK]")) || is_roberta) {
    config["cls_token"] = is_roberta ? "<s>" : "[CLS]";
    config["sep_token"] = is_roberta ? "</s>" : "[SEP]";
    config["mask_token"] = is_roberta ? "<mask>" : "[MASK]";
  }
  if (const auto length = parse_i64(context)) config["model_max_length"] = *length;
  if (!templates.is_null()) config["chat_template"] = std::move(templates);
  return config;
}

}  // namespace

TokenizerFiles huggingface_tokenizer(const Model& model, bool wanted) {
  TokenizerFiles result;
  result.ids = {{"bos_token_id", Json()}, {"eos_token_id", Json()}, {"pad_token_id", Json()}};
  const auto found = model.metadata.find("chat_template");
  const std::string template_text = found == model.metadata.end() ? std::string() : found->second;
  const auto leave_out = [&](std::string note) {
    result.notes.push_back(std::move(note));
    if (!template_text.empty()) result.files.emplace_back("chat_template.jinja", template_text);
  };
  if (!model.tokenizer) {
    leave_out("the model has no tokenizer");
    return result;
  }
  const TokenizerData& data = *model.tokenizer;
  result.ids = {{"bos_token_id", id_or_null(data.bos)},
                {"eos_token_id", end_ids(data)},
                {"pad_token_id", id_or_null(data.pad)}};
  if (!wanted) {
    leave_out("the tokenizer was left out, as asked");
    return result;
  }
  if (data.kind == TokenizerKind::kSentencePieceModel) {
    const Result<std::string> file = write_sentencepiece_file(data);
    Result<Json> config = sentencepiece_side_file(data);
    if (!file.ok() || !config.ok()) {
      leave_out(format("the tokenizer was left out: {}", (file.ok() ? config.status() : file.status()).message()));
      return result;
    }
    result.files.emplace_back("tokenizer.model", *file);
    Json templates = chat_templates(model);
    if (config->empty()) {  // the file is complete; a side file would change its meaning
      if (!template_text.empty()) result.files.emplace_back("chat_template.jinja", template_text);
      return result;
    }
    if (!templates.is_null()) (*config)["chat_template"] = std::move(templates);
    result.files.emplace_back("tokenizer_config.json", dump(*config) + "\n");
    return result;
  }
  Result<std::string> text = write_tokenizer_json(data);
  if (!text.ok()) {
    leave_out(format("the tokenizer was left out: {}", text.status().message()));
    return result;
  }
  result.files.emplace_back("tokenizer.json", std::move(*text));
  result.files.emplace_back("tokenizer_config.json",
                            dump(tokenizer_config(data, chat_templates(model), context_of(model))) + "\n");
  return result;
}

}  // namespace tessera
