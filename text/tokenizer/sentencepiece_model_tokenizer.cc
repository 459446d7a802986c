// Tokenizers of a tokenizer.model, equal to the library sentencepiece: text between control tokens
// is normalized and split into pieces; unknown pieces become bytes, or one unknown token per run.
#include <algorithm>
#include <array>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/sentencepiece_normalizer.h"
#include "text/tokenizer/sentencepiece_pieces.h"
#include "text/tokenizer/sentencepiece_settings.h"
#include "text/tokenizer/word_cache.h"

namespace tessera {
namespace {

constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";  // ▁, U+2581
constexpr size_t kLongestPart = size_t{1} << 30;           // pieces count bytes in 32 bits

std::string with_spaces(std::string_view piece) {
  std::string text;
  for (size_t done = 0; done < piece.size();) {
    const size_t found = std::min(piece.find(kSpaceSymbol, done), piece.size());
    text.append(piece.substr(done, found - done));
    if (found == piece.size()) break;
    text += ' ';
    done = found + kSpaceSymbol.size();
  }
  return text;
}

class SentencePieceDecoder final : public TextDecoder {
 public:
  SentencePieceDecoder(const TokenizerData& data, const SentencePieceSettings& settings,
                       const Charsmap* denormalizer)
      : data_(data), settings_(settings), denormalizer_(denormalizer) {}

  std::string add(int32_t id) override {
    if (id < 0 || static_cast<size_t>(id) >= data_.tokens.size()) return {};
    std::string text = text_of(id);
    has_text_ = has_text_ || !text.empty();
    return denormalizer_ ? denormalized(std::move(text), false) : std::move(text);
  }
  std::string finish() override { return denormalizer_ ? denormalized({}, true) : std::string(); }

 private:
  std::string text_of(int32_t id) {
    const std::string& token = data_.tokens[static_cast<size_t>(id)];
    const TokenType type = data_.types[static_cast<size_t>(id)];
    if (type == TokenType::kByte)
      if (const int byte = byte_of_token(token); byte >= 0) return std::string(1, static_cast<char>(byte));
    // Only the first piece of the text loses its space.
    if (has_taken_space_ || has_text_) begins_ = false;
    has_taken_space_ = false;
    if (type == TokenType::kControl) return {};
    if (type == TokenType::kUnknown) return settings_.unknown_surface;
    if (settings_.pieces > 0 && id >= settings_.pieces) return type == TokenType::kUnused ? std::string() : token;
    std::string_view piece = token;
    if (begins_ && (settings_.add_dummy_prefix || settings_.remove_extra_whitespaces) &&
        piece.starts_with(kSpaceSymbol)) {
      piece.remove_prefix(kSpaceSymbol.size());
      has_taken_space_ = !settings_.remove_extra_whitespaces;  // else each piece before the first text loses its space
    }
    return with_spaces(piece);
  }

  // Applies the denormalizer's table; a possible prefix of an entry waits for more text.
  std::string denormalized(std::string text, bool is_last) {
    held_ += text;
    std::string result;
    size_t at = 0;
    while (at < held_.size()) {
      const std::string_view rest = std::string_view(held_).substr(at);
      bool is_open = false;
      const auto found = denormalizer_->find_longest(rest, &is_open);
      if (is_open && !is_last) break;
      result += found ? found->replacement : rest.substr(0, 1);
      at += found ? found->size : 1;
    }
    held_.erase(0, at);
    return result;
  }

  const TokenizerData& data_;
  const SentencePieceSettings& settings_;
  const Charsmap* const denormalizer_;
  bool begins_ = true, has_taken_space_ = false, has_text_ = false;
  std::string held_;
};

class SentencePieceModelTokenizer final : public Tokenizer {
 public:
  SentencePieceModelTokenizer(TokenizerData data, SentencePieceSettings settings)
      : Tokenizer(std::move(data)),
        settings_(std::move(settings)),
        user_defined_(data_, piece_count()),
        pieces_(data_, piece_count(), settings_.algorithm, user_defined_) {}

  Status build() {
    TSR_ASSIGN_OR_RETURN(normalizer_, SentencePieceNormalizer::create(settings_, user_defined_));
    if (!settings_.denormalizer_charsmap.empty()) {
      TSR_ASSIGN_OR_RETURN(denormalizer_, Charsmap::create(settings_.denormalizer_charsmap));
    }
    std::vector<AddedToken> added = settings_.added;
    std::vector<bool> is_listed(data_.tokens.size());
    for (AddedToken& token : added) {
      token.normalized = false;  // matched in the original text: each part between them gets its own dummy prefix
      if (token.id < 0 || static_cast<size_t>(token.id) >= data_.tokens.size())
        return Status(StatusCode::kCorrupt,
                      format("the added token {} has id {}; the vocabulary has {} tokens",
                             quote(token.content, 64), token.id, data_.tokens.size()));
      is_listed[static_cast<size_t>(token.id)] = true;
    }
    bytes_.fill(-1);
    for (size_t id = 0; id < data_.tokens.size(); ++id) {
      const TokenType type = data_.types[id];
      if (const int byte = byte_of_token(data_.tokens[id]); byte >= 0 && type == TokenType::kByte)
        bytes_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
      if ((type != TokenType::kControl && type != TokenType::kUnknown) || is_listed[id]) continue;
      AddedToken token;
      token.content = data_.tokens[id];
      token.id = static_cast<int32_t>(id);
      token.lstrip = std::ranges::find(data_.lstrip_ids, token.id) != data_.lstrip_ids.end();
      token.rstrip = std::ranges::find(data_.rstrip_ids, token.id) != data_.rstrip_ids.end();
      token.normalized = false;
      token.special = true;
      added.push_back(std::move(token));
    }
    TSR_ASSIGN_OR_RETURN(added_, AddedTokens::create(added, Normalizer()));
    const bool has_bytes = std::ranges::none_of(bytes_, [](int32_t id) { return id < 0; });
    if (settings_.byte_fallback && !has_bytes)
      return Status(StatusCode::kInvalidArgument,
                    "the vocabulary's unknown pieces become bytes, but not each byte has a token (<0xNN>)");
    return {};
  }

  std::unique_ptr<TextDecoder> decoder() const override {
    return std::make_unique<SentencePieceDecoder>(data_, settings_, denormalizer_.get());
  }

 private:
  struct Scratch {
    explicit Scratch(WordCache* kept) : words(kept != nullptr ? *kept : own_words) {}

    SentencePiecePieces::Scratch pieces;
    std::vector<SentencePiecePiece> found;
    WordCache own_words;
    WordCache& words;
    std::vector<WordToken> tokens;  // of the present part
  };

  size_t piece_count() const {
    const size_t all = data_.tokens.size();
    return settings_.pieces > 0 ? std::min(all, static_cast<size_t>(settings_.pieces)) : all;
  }

  Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const override {
    Scratch scratch(options.words);
    for (const TextFragment& fragment : added_.split(text, options)) {
      if (fragment.token >= 0) {
        out.add(fragment.token, fragment.begin);
      } else {
        TSR_RETURN_IF_ERROR(
            encode_part({fragment.text, fragment.begin, fragment.begin == 0}, options, scratch, out));
      }
    }
    return {};
  }

  Status encode_part(const SentencePieceNormalizer::Part& part, const EncodeOptions& options,
                     Scratch& scratch, TokenSink& out) const {
    const LiteralBytes literal(options.literal);
    const bool tracked = out.with_begins() || !literal.is_empty();
    TSR_ASSIGN_OR_RETURN(const NormalizedText normalized, normalizer_.normalize(part, literal, tracked));
    const std::string_view text = normalized.text;
    const auto source_of = [&](size_t at) {
      return tracked ? normalized.origins[at] : part.begin + at * part.text.size() / text.size();
    };
    bool after_unknown = false;
    for (size_t done = 0; done < text.size();) {
      const size_t size = pieces_.independent_part(text.substr(done));
      if (size >= kLongestPart)
        return Status(StatusCode::kUnsupported,
                      format("a piece of the text that is not split has {} bytes, at most {} are known: give "
                             "it in parts",
                             size, kLongestPart));
      const auto may_match = [&](size_t begin, size_t end, int32_t id) {
        return literal.is_empty() || user_defined_.is_blank(id) ||
               !literal.overlap(source_of(done + begin), source_of(done + end - 1) + 1);
      };
      const std::string_view piece = text.substr(done, size);
      const std::vector<WordToken>* known = literal.is_empty() ? scratch.words.find(piece) : nullptr;
      if (known == nullptr) {
        tokenize(piece, may_match, scratch);
        if (literal.is_empty()) scratch.words.keep(piece, scratch.tokens);
        known = &scratch.tokens;
      }
      for (size_t i = 0; i < known->size(); ++i) {
        const WordToken& token = (*known)[i];
        const bool is_fused = i == 0 && after_unknown && token.id == data_.unknown;
        if (!is_fused) out.add(token.id, source_of(done + token.begin));
      }
      after_unknown = !known->empty() && known->back().id == data_.unknown;
      done += size;
    }
    return {};
  }

  // Tokenizes a part into scratch.tokens. A run of unknown pieces leaves one token.
  void tokenize(std::string_view part, const SentencePiecePieces::MayMatch& may_match, Scratch& scratch) const {
    scratch.found.clear();
    scratch.tokens.clear();
    pieces_.split(part, may_match, scratch.pieces, scratch.found);
    for (const SentencePiecePiece& piece : scratch.found) {
      const bool is_unknown = piece.id == data_.unknown;
      if (is_unknown && settings_.byte_fallback) {
        for (uint32_t i = piece.begin; i < piece.begin + piece.size; ++i)
          scratch.tokens.push_back({bytes_[static_cast<uint8_t>(part[i])], i});
      } else if (!is_unknown || scratch.tokens.empty() || scratch.tokens.back().id != data_.unknown) {
        scratch.tokens.push_back({piece.id, piece.begin});
      }
    }
  }

  const SentencePieceSettings settings_;
  const UserDefinedPieces user_defined_;
  const SentencePiecePieces pieces_;
  SentencePieceNormalizer normalizer_;
  std::shared_ptr<const Charsmap> denormalizer_;  // null: none
  AddedTokens added_;                             // control and unknown tokens
  std::array<int32_t, 256> bytes_{};
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_sentencepiece_model_tokenizer(TokenizerData data) {
  const size_t count = data.tokens.size();
  if (count == 0 || data.scores.size() != count || data.types.size() != count)
    return Status(StatusCode::kInvalidArgument,
                  format("a SentencePiece vocabulary needs a score and a type for each token; got {} tokens, "
                         "{} scores, {} types",
                         count, data.scores.size(), data.types.size()));
  if (data.unknown < 0)
    return Status(StatusCode::kInvalidArgument,
                  "a SentencePiece vocabulary needs an unknown token; it has none");
  TSR_ASSIGN_OR_RETURN(SentencePieceSettings settings, read_sentencepiece_settings(data.pipeline));
  auto tokenizer = std::make_shared<SentencePieceModelTokenizer>(std::move(data), std::move(settings));
  TSR_RETURN_IF_ERROR(tokenizer->build());
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

}  // namespace tessera
