// Charsmap: SentencePiece's replacement table: a double array that finds
// prefixes, and NUL-terminated replacements. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

class Charsmap {
 public:
  // `bytes` as in sentencepiece_model.proto. kInvalidArgument for inconsistent sizes.
  static Result<std::shared_ptr<const Charsmap>> create(std::string_view bytes);

  struct Match {
    size_t size = 0;  // replaced bytes of the text
    std::string_view replacement;
  };
  // The longest entry that `text` begins with, as in SentencePiece.
  // `is_open`, if given: a longer entry may continue past the text's end.
  std::optional<Match> find_longest(std::string_view text, bool* is_open = nullptr) const;
  // The shortest entry, as in the library `tokenizers`.
  std::optional<std::string_view> find_shortest(std::string_view text) const;

 private:
  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6); }
  static uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xff); }
  // Calls use(end, replacement) for each entry that `text` begins with, shortest first,
  // until it returns false. Returns whether the text ended before the table did.
  template <class Use>
  bool for_each_prefix(std::string_view text, Use&& use) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace tessera
