// SentencePieceNormalizer: a text as the pieces of a SentencePiece vocabulary match it: characters mapped, white space
// removed and written as ▁ (sentencepiece's src/normalizer.cc). Immutable; any thread.
#pragma once

#include <memory>
#include <string_view>

#include "graph/base/result.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/sentencepiece_settings.h"
#include "text/tokenizer/user_defined_pieces.h"

namespace tessera {

class SentencePieceNormalizer {
 public:
  // Borrows both.
  static Result<SentencePieceNormalizer> create(const SentencePieceSettings& settings,
                                                const UserDefinedPieces& user_defined);

  // A part of a whole text, which begins at byte `begin` of it. With `origins` the result has them, counted in the whole
  // text. User-defined tokens stay as they are, except where they overlap literal bytes. Bytes that are no UTF-8 become
  // U+FFFD. kInvalidArgument where the text would grow far beyond what it was.
  struct Part {
    std::string_view text;
    size_t begin = 0;
    bool is_first = true;
  };
  Result<NormalizedText> normalize(const Part& part, const LiteralBytes& literal, bool origins) const;

 private:
  struct Prefix {
    std::string_view text;  // what it becomes
    size_t size = 0;        // bytes that are read
  };
  Prefix normalize_prefix(const Part& part, size_t at, const LiteralBytes& literal) const;

  const SentencePieceSettings* settings_ = nullptr;
  const UserDefinedPieces* user_defined_ = nullptr;
  std::shared_ptr<const Charsmap> charsmap_;  // null: characters stay as they are
};

}  // namespace tessera
