#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/base/cancellation.h"
#include "graph/base/progress.h"
#include "graph/base/text.h"
#include "text/tokenizer/kinds.h"

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
  const std::pair<std::string_view, const std::vector<int32_t>*> lists[] = {
      {"ends texts", &data.end_ids},
      {"takes the space before it", &data.lstrip_ids},
      {"takes the space after it", &data.rstrip_ids}};
  for (auto [what, ids] : lists) {
    for (int32_t id : *ids) {
      if (id < 0 || id >= static_cast<int64_t>(count)) {
        return Status(StatusCode::kInvalidArgument,
                      format("a token that {} is {}, outside the vocabulary of {}", what, id, count));
      }
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
                             {TokenizerKind::kWordPiece, create_wordpiece_tokenizer},
                             {TokenizerKind::kPipeline, create_pipeline_tokenizer},
                             {TokenizerKind::kRwkv, create_rwkv_tokenizer},
                             {TokenizerKind::kSentencePieceModel, create_sentencepiece_model_tokenizer}};
  for (const Kind& kind : kKinds) {
    if (kind.kind != data.kind) continue;
    if (data.kind == TokenizerKind::kBytes && data.tokens.empty()) {
      constexpr char kHex[] = "0123456789ABCDEF";
      for (int byte = 0; byte < 256; ++byte) {
        data.tokens.push_back(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
      }
    }
    TSR_RETURN_IF_ERROR(check(data));
    if (data.eos >= 0) data.end_ids.push_back(data.eos);
    std::ranges::sort(data.end_ids);
    data.end_ids.erase(std::unique(data.end_ids.begin(), data.end_ids.end()), data.end_ids.end());
    return kind.create(std::move(data));
  }
  return Status(
      StatusCode::kInvalidArgument,
      format("tokenizer kind {} is not known; this version has kinds 0 to 6", static_cast<int>(data.kind)));
}

void TokenSink::come_to(size_t begin) const {
  cancellation_point();
  if (text_bytes_ > 0) report_progress(static_cast<double>(begin) / static_cast<double>(text_bytes_));
}

Result<Encoding> Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                                   bool with_begins) const {
  size_t end = 0;
  for (const TextRange& range : options.literal) {
    if (range.begin < end || range.end < range.begin || range.end > text.size())
      return Status(
          StatusCode::kInvalidArgument,
          format("a literal range is {} to {}; wanted ranges in order, from {} on and within the {} "
                 "bytes of the text",
                 range.begin, range.end, end, text.size()));
    end = range.end;
  }
  TokenSink sink(with_begins, text.size());
  TSR_RETURN_IF_ERROR(encode_into(text, options, sink));
  return sink.take();
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  TSR_ASSIGN_OR_RETURN(Encoding encoding, encode(text, options, false));
  return std::move(encoding.ids);
}

Result<Encoding> Tokenizer::encode_with_begins(std::string_view text, const EncodeOptions& options) const {
  return encode(text, options, true);
}

class PreviousTokenDecoder final : public TextDecoder {
 public:
  explicit PreviousTokenDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string add(int32_t id) override {
    std::string text = tokenizer_.decode_one(id, previous_);
    previous_ = id;
    return text;
  }

 private:
  const Tokenizer& tokenizer_;
  int32_t previous_ = -1;
};

std::unique_ptr<TextDecoder> Tokenizer::decoder() const {
  return std::make_unique<PreviousTokenDecoder>(*this);
}

std::string Tokenizer::decode_one(int32_t, int32_t) const { return {}; }

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  const std::unique_ptr<TextDecoder> decoder = this->decoder();
  std::string text;
  for (int32_t id : ids) text += decoder->add(id);
  return text += decoder->finish();
}

std::vector<int32_t> Tokenizer::with_before_text(std::vector<int32_t> ids) const {
  const std::span<const int32_t> before = before_text();
  const bool has_it = ids.size() >= before.size() && std::ranges::equal(before, std::span(ids).first(before.size()));
  if (!has_it) ids.insert(ids.begin(), before.begin(), before.end());
  return ids;
}

std::span<const int32_t> Tokenizer::before_text() const {
  return {&data_.bos, data_.add_bos && data_.bos >= 0 ? size_t{1} : 0};
}

std::span<const int32_t> Tokenizer::after_text() const {
  return {&data_.eos, data_.add_eos && data_.eos >= 0 ? size_t{1} : 0};
}

std::string_view Tokenizer::hidden_text(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= data_.tokens.size()) return {};
  const auto index = static_cast<size_t>(id);
  constexpr size_t kBytes = 256;
  const bool is_named = id == data_.bos || id == data_.eos || id == data_.pad || id == data_.unknown;
  const bool is_hidden = data_.types.empty() ? is_named || (data_.kind == TokenizerKind::kBytes && index >= kBytes)
                                             : data_.types[index] == TokenType::kControl;
  return is_hidden ? std::string_view(data_.tokens[index]) : std::string_view();
}

bool Tokenizer::ends_text(int32_t id) const {
  return id >= 0 && (id == data_.bos || std::ranges::binary_search(data_.end_ids, id));
}

}  // namespace tessera
