// SpecialTokens: finds tokens that are matched as whole strings before any merging: user-defined ones always,
// control and unknown ones only where the caller allows it. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "serialize/tokenizer/tokenizer.h"

namespace tessera {

// A piece of the text: ordinary, or exactly one special token.
struct TextFragment {
  std::string_view text;
  int32_t token = -1;  // -1: ordinary text
};

class SpecialTokens {
 public:
  SpecialTokens(std::span<const std::string> tokens, std::span<const TokenType> types);

  // Longer tokens win over shorter ones wherever they overlap, then lower ids, then earlier positions. Linear
  // in the text but for the sort of the occurrences. No fragment is empty.
  std::vector<TextFragment> split(std::string_view text, bool parse_special) const;

 private:
  struct Match {
    int32_t always = -1, with_special = -1;  // token that ends at a trie node
  };
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::unordered_map<uint64_t, uint32_t> edges_;  // (node << 8 | byte) -> node; node 0 is the root
  std::vector<Match> matches_;                    // by node
  std::array<bool, 256> first_{};
};

}  // namespace tessera
