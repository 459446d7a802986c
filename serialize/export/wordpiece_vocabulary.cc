#include "serialize/export/wordpiece_vocabulary.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr std::string_view kSpace = "▁", kContinued = "##";

Status no_word(std::string_view part, const Json& value) {
  return Status(StatusCode::kUnsupported,
                format("the tokenizer's {} is {}, which GGUF files have no word for; leave the tokenizer out "
                       "(--no-tokenizer, option tokenizer = 0) to run the model by token ids",
                       part, quote_json(value, 120)));
}

std::string type_of(const Json& part) { return part.is_object() ? part.value("type", "") : std::string(); }

TokenType token_type(const TokenizerData& data, size_t id) {
  return id < data.types.size() ? data.types[id] : TokenType::kNormal;
}

// The id of the single token at this place.
Result<int32_t> only_id(const Json& parts, const char* key) {
  const Json ids = parts.value(key, Json::array());
  if (!ids.is_array() || ids.size() != 1 || !ids[0].is_number_integer()) return no_word(key, ids);
  return ids[0].get<int32_t>();
}

}  // namespace

bool is_wordpiece_pipeline(const TokenizerData& pipeline) {
  const Result<Json> parts = parse_json(pipeline.pipeline, "the tokenizer's pipeline");
  return parts.ok() && type_of(parts->value("model", Json())) == "WordPiece";
}

Result<WordPieceVocabulary> wordpiece_vocabulary(const TokenizerData& pipeline) {
  TSR_ASSIGN_OR_RETURN(const Json parts, parse_json(pipeline.pipeline, "the tokenizer's pipeline"));
  const Json model = parts.value("model", Json()), normalizer = parts.value("normalizer", Json()),
             pre_tokenizer = parts.value("pre_tokenizer", Json());
  if (model.value("continuing_subword_prefix", std::string(kContinued)) != kContinued)
    return no_word("model", model);
  if (type_of(normalizer) != "BertNormalizer" || !normalizer.value("clean_text", true) ||
      !normalizer.value("handle_chinese_chars", true))
    return no_word("normalizer", normalizer);
  if (type_of(pre_tokenizer) != "BertPreTokenizer") return no_word("pre_tokenizer", pre_tokenizer);
  WordPieceVocabulary vocabulary;
  vocabulary.lowercase = normalizer.value("lowercase", true);
  const auto strips = normalizer.find("strip_accents");
  vocabulary.strip_accents =
      strips != normalizer.end() && strips->is_boolean() ? strips->get<bool>() : vocabulary.lowercase;
  TokenizerData& data = vocabulary.data;
  data.kind = TokenizerKind::kWordPiece;
  data.tokens = pipeline.tokens;
  data.types = pipeline.types;
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  data.unknown = pipeline.unknown;
  data.pad = pipeline.pad;
  data.end_ids = pipeline.end_ids;
  TSR_ASSIGN_OR_RETURN(data.bos, only_id(parts, "before"));
  TSR_ASSIGN_OR_RETURN(data.eos, only_id(parts, "after"));
  data.add_bos = data.add_eos = true;
  data.add_space_prefix = false;
  const std::string unknown = model.value("unk_token", "[UNK]");
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    std::string& token = data.tokens[id];
    if (token == unknown && data.unknown < 0) data.unknown = static_cast<int32_t>(id);
    const TokenType type = token_type(data, id);
    if (type == TokenType::kControl || type == TokenType::kUnused || type == TokenType::kUnknown) continue;
    if (token.starts_with(kContinued) && token.size() > kContinued.size())
      token.erase(0, kContinued.size());
    else
      token.insert(0, kSpace);
  }
  return vocabulary;
}

std::vector<std::string> wordpiece_tokens(const TokenizerData& data) {
  std::vector<std::string> tokens = data.tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    std::string& token = tokens[id];
    if (token.starts_with(kSpace))
      token.erase(0, kSpace.size());
    else if (token_type(data, id) == TokenType::kNormal)
      token.insert(0, kContinued);
  }
  return tokens;
}

}  // namespace tessera
