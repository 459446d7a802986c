// Charsmap: SentencePiece's table of texts and what they become: a double array that finds a text's prefixes, and
// replacements that end with NUL. Immutable; any thread.
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
  // `bytes` as sentencepiece_model.proto has them. kInvalidArgument where sizes do not agree.
  static Result<std::shared_ptr<const Charsmap>> create(std::string_view bytes);

  struct Match {
    size_t size = 0;  // bytes of the text that are replaced
    std::string_view replacement;
  };
  // The longest entry that `text` begins with, as SentencePiece reads it. `is_open`, if given: the text ends where a
  // longer entry may go on.
  std::optional<Match> find_longest(std::string_view text, bool* is_open = nullptr) const;
  // The shortest, as the library `tokenizers` reads it.
  std::optional<std::string_view> find_shortest(std::string_view text) const;

 private:
  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6); }
  static uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xff); }
  // Calls use(end, replacement) for each entry that `text` begins with, shortest first, until it returns false.
  // Whether the text ended before the table did.
  template <class Use>
  bool for_each_prefix(std::string_view text, Use&& use) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace tessera
