// SentencePieceNormalizer: maps characters, removes white space and writes it as ▁, for matching
// a SentencePiece vocabulary (sentencepiece's src/normalizer.cc). Immutable; any thread.
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

  // Part: a part of a text, from byte `begin`. With `origins` the result has them, relative
  // to the whole text. User-defined tokens are kept, except where they overlap literal bytes.
  // Invalid UTF-8 becomes U+FFFD. kInvalidArgument if the text would grow excessively.
  struct Part {
    std::string_view text;
    size_t begin = 0;
    bool is_first = true;
  };
  Result<NormalizedText> normalize(const Part& part, const LiteralBytes& literal, bool origins) const;

 private:
  struct Prefix {
    std::string_view text;  // replacement
    size_t size = 0;        // replaced bytes
  };
  Prefix normalize_prefix(const Part& part, size_t at, const LiteralBytes& literal) const;

  const SentencePieceSettings* settings_ = nullptr;
  const UserDefinedPieces* user_defined_ = nullptr;
  std::shared_ptr<const Charsmap> charsmap_;  // null: no mapping
};

}  // namespace tessera
