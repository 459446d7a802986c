// WrittenControlTokens: names of control tokens written out in a text, as by a chat
// template. Encoded without `parse_special` they are letters. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace tessera {

using TokenNameCounts = std::map<std::string, int64_t>;  // by the token's name

class WrittenControlTokens {
 public:
  explicit WrittenControlTokens(const TokenizerData& data);
  // Counts each name; of overlapping names the first and longest counts. Linear in the text.
  TokenNameCounts count(std::string_view text) const;

 private:
  std::array<std::vector<size_t>, 256> sizes_;  // sizes of names by first byte, longest first
  std::unordered_set<std::string> names_;
};

// The note about a text with such names; empty: none. `consequence`: "they are learnt as letters".
std::string written_control_note(const TokenNameCounts& counts, std::string_view found_in,
                                 std::string_view consequence);

}  // namespace tessera
