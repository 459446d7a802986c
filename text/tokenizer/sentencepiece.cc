// SentencePiece BPE with byte fallback as in llama.cpp (Llama): spaces become "▁",
// then neighbours merge by score (score_merges.h). A piece without a token becomes its
// bytes, or, without byte tokens, consecutive such pieces become one unknown token.
#include <algorithm>
#include <array>

#include "graph/base/text.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/score_merges.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/word_cache.h"

namespace tessera {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // ▁, U+2581

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (size_t position = 0;;) {
    const size_t found = text.find(from, position);
    if (found == std::string_view::npos) return result.append(text.substr(position));
    result.append(text.substr(position, found - position)).append(to);
    position = found + from.size();
  }
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(TokenizerData data)
      : Tokenizer(std::move(data)),
        types_(types_of(data_)),
        special_(data_, types_),
        merges_(data_, types_) {
    bytes_.fill(-1);
    for (size_t id = 0; id < data_.tokens.size(); ++id)
      if (const int byte = byte_of_token(data_.tokens[id]); byte >= 0)
        bytes_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
    for (size_t byte = 0; byte < 256; ++byte)  // a one-byte token replaces a missing "<0xNN>"
      if (bytes_[byte] < 0) bytes_[byte] = merges_.find(std::string(1, static_cast<char>(byte)));
  }

  int missing_byte() const {  // a byte without a token, or -1
    for (size_t byte = 0; byte < 256; ++byte) {
      if (bytes_[byte] < 0 && data_.unknown < 0) return static_cast<int>(byte);
    }
    return -1;
  }

  Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const override {
    Scratch scratch(options.words);
    bool after_special = true;  // also at the start of the text
    for (const TextFragment& fragment : special_.split(text, options)) {
      if (fragment.token >= 0) {
        out.add(fragment.token, fragment.begin);
      } else {
        const bool prefixed = data_.add_space_prefix && after_special;
        std::string escaped = prefixed ? std::string(kSpace) : std::string();
        escaped += replace_all(fragment.text, " ", kSpace);
        encode_words(escaped, {fragment.text, fragment.begin, prefixed}, scratch, out);
      }
      after_special = fragment.token >= 0;
    }
    return {};
  }

  std::string decode_one(int32_t id, int32_t previous) const override {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= data_.tokens.size()) return {};
    const std::string& token = data_.tokens[index];
    switch (types_[index]) {
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kUnused: return {};
      case TokenType::kUserDefined: return token;
      case TokenType::kByte:
        if (const int byte = byte_of_token(token); byte >= 0) return std::string(1, static_cast<char>(byte));
        return token;
      case TokenType::kNormal: break;
    }
    std::string text = replace_all(token, kSpace, " ");
    const bool first = previous < 0 || previous == data_.bos;
    if (first && data_.add_space_prefix && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

 private:
  static std::vector<TokenType> types_of(const TokenizerData& data) {
    if (!data.types.empty()) return data.types;
    std::vector<TokenType> types(data.tokens.size(), TokenType::kNormal);
    for (size_t id = 0; id < types.size(); ++id) {
      if (byte_of_token(data.tokens[id]) >= 0) types[id] = TokenType::kByte;
    }
    for (int32_t id : {data.bos, data.eos, data.pad}) {
      if (id >= 0) types[static_cast<size_t>(id)] = TokenType::kControl;
    }
    if (data.unknown >= 0) types[static_cast<size_t>(data.unknown)] = TokenType::kUnknown;
    return types;
  }

  struct Scratch {
    explicit Scratch(WordCache* kept) : words(kept != nullptr ? *kept : own_words) {}

    WordCache own_words;
    WordCache& words;
    ScoreMerges::Scratch merges;
    std::vector<WordToken> tokens;  // of the present word
  };

  // Source: the text before escaping, and its place in the whole.
  struct Source {
    std::string_view text;
    size_t begin;
    bool prefixed;
  };

  // Place: tracks an escaped text and its source in parallel.
  class Place {
   public:
    explicit Place(const Source& source) : source_(source), after_prefix_(!source.prefixed) {}
    // The original byte of byte `target` of the escaped text; monotonic.
    size_t at(size_t target) {
      while (escaped_at_ < target) {
        if (!after_prefix_) {
          after_prefix_ = true;
          escaped_at_ += kSpace.size();
        } else if (source_.text[at_] == ' ') {
          ++at_;
          escaped_at_ += kSpace.size();
        } else {
          ++at_;
          ++escaped_at_;
        }
      }
      return source_.begin + at_;
    }

   private:
    const Source& source_;
    size_t at_ = 0, escaped_at_ = 0;
    bool after_prefix_;
  };

  // Words merge separately, with their leading spaces: the same result in less time and memory.
  void encode_words(std::string_view text, const Source& source, Scratch& scratch, TokenSink& out) const {
    const size_t first = out.size();
    Place place(source);
    for (size_t done = 0; done < text.size();) {
      const std::string_view word = text.substr(done, merges_.end_of_word(text.substr(done)));
      const std::vector<WordToken>* known = scratch.words.find(word);
      if (known == nullptr) {
        scratch.tokens.clear();
        merge(word, scratch);
        scratch.words.keep(word, scratch.tokens);
        known = &scratch.tokens;
      }
      const size_t about = source.begin + done * source.text.size() / text.size();
      for (size_t i = 0; i < known->size(); ++i) {
        const WordToken& token = (*known)[i];
        const bool fused =
            i == 0 && token.id == data_.unknown && out.size() > first && out.last() == data_.unknown;
        if (!fused) out.add(token.id, out.with_begins() ? place.at(done + token.begin) : about);
      }
      done += word.size();
    }
  }

  // Appends the tokens of a word to scratch.tokens.
  void merge(std::string_view text, Scratch& scratch) const {
    scratch.merges.symbols.clear();
    for (size_t at = 0; at < text.size();) {
      const size_t size = first_character(text.substr(at));
      scratch.merges.add(at, size, false);
      at += size;
    }
    merges_.merge(text, scratch.merges, [&](std::string_view piece) {
      put(piece, static_cast<uint32_t>(piece.data() - text.data()), scratch.tokens);
    });
  }

  // Appends a fully merged piece.
  void put(std::string_view piece, uint32_t begin, std::vector<WordToken>& tokens) const {
    if (const int32_t id = merges_.find(piece); id >= 0) {
      tokens.push_back({id, begin});
      return;
    }
    const bool spelt =
        std::ranges::all_of(piece, [&](char byte) { return bytes_[static_cast<uint8_t>(byte)] >= 0; });
    if (spelt) {
      for (char byte : piece) tokens.push_back({bytes_[static_cast<uint8_t>(byte)], begin++});
    } else if (tokens.empty() || tokens.back().id != data_.unknown) {
      tokens.push_back({data_.unknown, begin});
    }
  }

  std::vector<TokenType> types_;
  SpecialTokens special_;
  ScoreMerges merges_;                // views into data_, which never changes
  std::array<int32_t, 256> bytes_{};  // -1: no token
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_sentencepiece_tokenizer(TokenizerData data) {
  if (data.tokens.empty() || data.scores.empty()) {
    return Status(
        StatusCode::kInvalidArgument,
        format("a SentencePiece tokenizer needs tokens and a score for each; got {} tokens, {} scores",
               data.tokens.size(), data.scores.size()));
  }
  auto tokenizer = std::make_shared<SentencePieceTokenizer>(std::move(data));
  if (const int byte = tokenizer->missing_byte(); byte >= 0) {
    return Status(
        StatusCode::kInvalidArgument,
        format("the vocabulary has neither a token for byte {} (\"<0xNN>\") nor an unknown token", byte));
  }
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

}  // namespace tessera
