#include "text/tokenizer/token_addition.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/sentencepiece_settings.h"
#include "text/tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

constexpr size_t kBytes = 256;

// Fills in types by id if the vocabulary has none.
void complete_types(TokenizerData& data) {
  if (!data.types.empty()) return;
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  if (data.kind == TokenizerKind::kBytes)
    for (size_t id = kBytes; id < data.types.size(); ++id) data.types[id] = TokenType::kControl;
  if (data.kind != TokenizerKind::kSentencePiece) return;
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (data.tokens[id].size() == 6 && data.tokens[id].starts_with("<0x")) data.types[id] = TokenType::kByte;
  for (const int32_t id : {data.bos, data.eos, data.pad})
    if (id >= 0) data.types[static_cast<size_t>(id)] = TokenType::kControl;
  if (data.unknown >= 0) data.types[static_cast<size_t>(data.unknown)] = TokenType::kUnknown;
}

// Lists the added tokens in the description, for kinds that have one.
Status describe_added(TokenizerData& data, std::span<const AddedToken> added) {
  if (data.kind == TokenizerKind::kSentencePieceModel) {
    TSR_ASSIGN_OR_RETURN(SentencePieceSettings settings, read_sentencepiece_settings(data.pipeline));
    if (settings.pieces == 0 && !added.empty()) settings.pieces = added[0].id;
    settings.added.insert(settings.added.end(), added.begin(), added.end());
    data.pipeline = to_json_text(settings);
  }
  if (data.kind == TokenizerKind::kPipeline) {
    nlohmann::json pipeline = nlohmann::json::parse(data.pipeline, nullptr, false);
    if (!pipeline.is_object())
      return Status(StatusCode::kCorrupt, "the tokenizer's pipeline is no JSON object");
    for (const AddedToken& token : added)
      pipeline["added_tokens"].push_back({{"content", token.content},
                                          {"id", token.id},
                                          {"single_word", false},
                                          {"lstrip", false},
                                          {"rstrip", false},
                                          {"normalized", false},
                                          {"special", token.special},
                                          {"in_model", false}});
    data.pipeline = pipeline.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return {};
}

}  // namespace

size_t used_tokens(const TokenizerData& data) {
  size_t used = data.tokens.size();
  if (data.kind == TokenizerKind::kBytes) used = std::max(used, kBytes);
  while (used > 0 && used <= data.types.size() && data.types[used - 1] == TokenType::kUnused) --used;
  for (const int32_t id : data.end_ids) used = std::max(used, static_cast<size_t>(id) + 1);
  return used;
}

Result<TokenizerData> with_added_tokens(TokenizerData data, std::span<const std::string> texts,
                                        bool special) {
  if (data.kind == TokenizerKind::kBytes && data.tokens.empty()) {
    TSR_ASSIGN_OR_RETURN(const auto bytes, Tokenizer::create(std::move(data)));
    data = bytes->data();
  }
  if (data.kind == TokenizerKind::kBytes && !special)
    return Status(StatusCode::kUnsupported,
                  "a tokenizer of plain bytes has control tokens only: add special ones");
  complete_types(data);
  std::vector<AddedToken> added;
  size_t next = used_tokens(data);
  for (const std::string& text : texts) {
    if (text.empty() || text.size() > kLongestAddedToken)
      return Status(StatusCode::kInvalidArgument, format("a token of {} bytes, wanted 1 to {}", text.size(),
                                                         kLongestAddedToken));
    const std::span<const std::string> used = std::span(data.tokens).first(next);
    const auto known = std::ranges::find(used, text);
    if (known != used.end())
      return Status(StatusCode::kInvalidArgument,
                    format("the vocabulary has the token {} already, with id {}", quote(text, 64),
                           static_cast<int64_t>(known - used.begin())));
    AddedToken token;
    token.content = text;
    token.id = static_cast<int32_t>(next);
    token.normalized = false;
    token.special = special;
    added.push_back(std::move(token));
    if (next == data.tokens.size()) {
      data.tokens.emplace_back();
      data.types.push_back(TokenType::kUnused);
      if (!data.scores.empty()) data.scores.push_back(0);
      if (!data.log_probabilities.empty()) data.log_probabilities.push_back(0);
    }
    data.tokens[next] = text;
    data.types[next] = special ? TokenType::kControl : TokenType::kUserDefined;
    ++next;
  }
  TSR_RETURN_IF_ERROR(describe_added(data, added));
  return data;
}

}  // namespace tessera
