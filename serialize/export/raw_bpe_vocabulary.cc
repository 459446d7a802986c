#include "serialize/export/raw_bpe_vocabulary.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr std::string_view kPlainSpace = " ", kMarkedSpace = "▁";

// A member of an object; null where there is none.
Json member(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : Json();
}

bool is_set(const Json& object, const char* key) {
  const Json value = member(object, key);
  return !value.is_null() && value != "" && value != false;
}

// A text; empty where there is none.
std::string text_of(const Json& object, const char* key) {
  const Json value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Members of objects are compared one by one: their order in a file says nothing.
bool replaces(const Json& step, std::string_view from, std::string_view to) {
  return text_of(step, "type") == "Replace" && text_of(member(step, "pattern"), "String") == from && text_of(step, "content") == to;
}

bool merges_utf8(const Json& model) {
  return text_of(model, "type") == "BPE" && is_set(model, "byte_fallback") && !is_set(model, "ignore_merges") &&
         !is_set(model, "continuing_subword_prefix") && !is_set(model, "end_of_word_suffix") && !is_set(model, "dropout");
}

// A split at spaces finds none after the normaliser.
bool splits_nothing(const Json& pre_tokenizer) {
  return pre_tokenizer.is_null() ||
         (text_of(pre_tokenizer, "type") == "Split" && text_of(member(pre_tokenizer, "pattern"), "String") == kPlainSpace);
}

bool joins_bytes(const Json& decoder) {
  const Json steps = member(decoder, "decoders");
  if (text_of(decoder, "type") != "Sequence" || !steps.is_array() || steps.size() < 2 || steps.size() > 3) return false;
  return replaces(steps[0], kMarkedSpace, kPlainSpace) && text_of(steps[1], "type") == "ByteFallback" &&
         (steps.size() == 2 || text_of(steps[2], "type") == "Fuse");
}

// GGUF files have no word for added tokens that take spaces or stand between words.
bool has_plain_tokens(const Json& added) {
  return added.is_array() && std::ranges::none_of(added, [](const Json& token) {
           return is_set(token, "single_word") || is_set(token, "lstrip") || is_set(token, "rstrip");
         });
}

bool is_byte_token(std::string_view token) { return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>'); }

}  // namespace

Result<std::optional<TokenizerData>> raw_bpe_vocabulary(const TokenizerData& pipeline) {
  TSR_ASSIGN_OR_RETURN(const Json parts, parse_json(pipeline.pipeline, "the tokenizer's pipeline"));
  if (!merges_utf8(member(parts, "model")) || !replaces(member(parts, "normalizer"), kPlainSpace, kMarkedSpace) ||
      !splits_nothing(member(parts, "pre_tokenizer")) || !joins_bytes(member(parts, "decoder")) ||
      !has_plain_tokens(member(parts, "added_tokens")))
    return std::optional<TokenizerData>();
  TokenizerData data = pipeline;
  for (size_t i = 0; i + 1 < data.merge_ids.size(); i += 2)
    data.merges.push_back(data.tokens[static_cast<size_t>(data.merge_ids[i])] + " " +
                          data.tokens[static_cast<size_t>(data.merge_ids[i + 1])]);
  data.merge_ids.clear();
  data.pipeline.clear();
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.types[id] == TokenType::kNormal && is_byte_token(data.tokens[id])) data.types[id] = TokenType::kByte;
    if (data.tokens[id].empty()) data.tokens[id] = format("[PAD{}]", id);  // an unused id
  }
  return std::optional<TokenizerData>(std::move(data));
}

}  // namespace tessera
