#include "serialize/tokenizer/tokenizer.h"

#include <cmath>
#include <limits>

#include "graph/base/text.h"
#include "serialize/tokenizer/kinds.h"

namespace tessera {
namespace {

Status check(const TokenizerData& data) {
  const size_t count = data.tokens.size();
  if (count > size_t{std::numeric_limits<int32_t>::max()}) {
    return Status(StatusCode::kInvalidArgument,
                  format("tokenizer has {} tokens; at most 2^31-1 have ids", count));
  }
  if (!data.types.empty() && data.types.size() != count) {
    return Status(StatusCode::kInvalidArgument,
                  format("tokenizer has {} token types for {} tokens", data.types.size(), count));
  }
  for (size_t id = 0; id < data.types.size(); ++id) {
    const auto type = static_cast<int>(data.types[id]);
    if (type < 1 || type > 6) {
      return Status(StatusCode::kInvalidArgument, format("token {} has type {}; types are 1 to 6", id, type));
    }
  }
  if (!data.scores.empty() && data.scores.size() != count) {
    return Status(StatusCode::kInvalidArgument,
                  format("tokenizer has {} scores for {} tokens", data.scores.size(), count));
  }
  for (size_t id = 0; id < data.scores.size(); ++id) {
    if (std::isnan(data.scores[id])) {
      return Status(StatusCode::kInvalidArgument, format("the score of token {} is not a number", id));
    }
  }
  const std::pair<std::string_view, int32_t> special[] = {
      {"bos", data.bos}, {"eos", data.eos}, {"unknown", data.unknown}, {"pad", data.pad}};
  for (auto [name, id] : special) {
    if (id < -1 || id >= static_cast<int64_t>(count)) {
      return Status(
          StatusCode::kInvalidArgument,
          format("the {} token is {}, outside the vocabulary of {}; -1 means none", name, id, count));
    }
  }
  return {};
}

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(TokenizerData data) {
  struct Kind {
    TokenizerKind kind;
    Result<std::shared_ptr<const Tokenizer>> (*create)(TokenizerData);
  };
  constexpr Kind kKinds[] = {{TokenizerKind::kBytes, create_byte_tokenizer},
                             {TokenizerKind::kSentencePiece, create_sentencepiece_tokenizer},
                             {TokenizerKind::kByteLevelBpe, create_byte_level_bpe_tokenizer},
                             {TokenizerKind::kWordPiece, create_wordpiece_tokenizer}};
  for (const Kind& kind : kKinds) {
    if (kind.kind != data.kind) continue;
    if (data.kind == TokenizerKind::kBytes && data.tokens.empty()) {
      constexpr char kHex[] = "0123456789ABCDEF";
      for (int byte = 0; byte < 256; ++byte) {
        data.tokens.push_back(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
      }
    }
    TSR_RETURN_IF_ERROR(check(data));
    return kind.create(std::move(data));
  }
  return Status(
      StatusCode::kInvalidArgument,
      format("tokenizer kind {} is not known; this version has kinds 0 to 3", static_cast<int>(data.kind)));
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  int32_t previous = -1;
  for (int32_t id : ids) {
    text += decode_one(id, previous);
    previous = id;
  }
  return text;
}

}  // namespace tessera
