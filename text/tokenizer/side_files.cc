#include "text/tokenizer/side_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/python_json.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

Result<json> read_object(const std::optional<std::string>& text, std::string_view name) {
  if (!text || text->empty()) return json::object();
  TSR_ASSIGN_OR_RETURN(TokenizerJson read, read_tokenizer_json(strict_json(*text), name));
  return std::move(read.rest);
}

// The token named by a value: a text, or an object with its content.
std::optional<AddedToken> named_token(const json& value) {
  const json& content = value.is_object() && value.contains("content") ? value["content"] : value;
  if (!content.is_string() || content.get_ref<const std::string&>().empty()) return {};
  AddedToken token;
  token.content = content.get<std::string>();
  token.special = true;
  const auto flag = [&](const char* name, bool otherwise) {
    const auto found = value.is_object() ? value.find(name) : value.end();
    return value.is_object() && found != value.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  };
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.normalized = flag("normalized", false);
  return token;
}

const json& extra_tokens(const json& config) {
  static const json kNone = json::array();
  for (const char* name : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto found = config.find(name);
    if (found != config.end() && (found->is_array() || found->is_object()) && !found->empty()) return *found;
  }
  return kNone;
}

}  // namespace

Result<json> merge_side_files(const SideFileTexts& texts) {
  TSR_ASSIGN_OR_RETURN(json config, read_object(texts.tokenizer_config, "tokenizer_config.json"));
  if (config.contains("added_tokens_decoder")) return config;
  TSR_ASSIGN_OR_RETURN(const json map, read_object(texts.special_tokens_map, "special_tokens_map.json"));
  for (const auto& [name, value] : map.items()) {
    const bool adds = name == "extra_special_tokens" && value.is_array() && config[name].is_array();
    if (!adds) config[name] = value;
    else
      for (const json& token : value)
        if (std::ranges::find(config[name], token) == config[name].end()) config[name].push_back(token);
  }
  TSR_ASSIGN_OR_RETURN(const json added, read_object(texts.added_tokens, "added_tokens.json"));
  if (added.empty()) return config;
  const std::vector<AddedToken> named = named_tokens(config);
  json decoder = json::object();
  for (const auto& [content, id] : added.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{INT32_MAX})
      return Status(StatusCode::kCorrupt, format("added_tokens.json: the id of {} is {}, wanted a token's",
                                                 quote(content, 64), quote(id.dump(), 64)));
    const bool special = std::ranges::find(named, content, &AddedToken::content) != named.end();
    decoder[std::to_string(id.get<int32_t>())] = {
        {"content", content}, {"special", special}, {"normalized", !special}};
  }
  config["added_tokens_decoder"] = std::move(decoder);
  return config;
}

Result<std::map<int64_t, AddedToken>> decoder_tokens(const json& config) {
  std::map<int64_t, AddedToken> tokens;
  const auto listed = config.find("added_tokens_decoder");
  if (listed == config.end() || !listed->is_object()) return tokens;
  for (const auto& [key, value] : listed->items()) {
    const auto id = parse_i64(key);
    const JsonMembers members(value, "tokenizer_config.json: added_tokens_decoder " + quote(key, 64));
    if (!id || *id < 0 || *id > INT32_MAX) return members.wrong("id", "a number as its name");
    AddedToken token;
    token.id = static_cast<int32_t>(*id);
    TSR_ASSIGN_OR_RETURN(token.content, members.text("content"));
    TSR_ASSIGN_OR_RETURN(token.single_word, members.flag("single_word", false));
    TSR_ASSIGN_OR_RETURN(token.lstrip, members.flag("lstrip", false));
    TSR_ASSIGN_OR_RETURN(token.rstrip, members.flag("rstrip", false));
    TSR_ASSIGN_OR_RETURN(token.normalized, members.flag("normalized", true));
    TSR_ASSIGN_OR_RETURN(token.special, members.flag("special", false));
    tokens.emplace(*id, std::move(token));
  }
  return tokens;
}

std::vector<AddedToken> named_tokens(const json& config) {
  std::vector<AddedToken> tokens;
  const auto add = [&](const json& value) {
    if (std::optional<AddedToken> token = named_token(value)) tokens.push_back(std::move(*token));
  };
  for (const char* name : kNames)
    if (config.contains(name)) add(config[name]);
  for (const auto& [name, value] : config.items())
    if (name.ends_with("_token") && value.is_string() && std::ranges::find(kNames, name) == std::end(kNames))
      add(value);
  for (const json& value : extra_tokens(config)) add(value);
  return tokens;
}

}  // namespace tessera
