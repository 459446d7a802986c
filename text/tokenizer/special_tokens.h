// SpecialTokens: finds tokens that are matched as whole strings before any merging: user-defined ones always,
// control and unknown ones only on request. Immutable; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace tessera {

// TextFragment: ordinary text, or exactly one special token.
struct TextFragment {
  std::string_view text;
  size_t begin = 0;    // offset in the whole text
  int32_t token = -1;  // -1: ordinary text
};

class SpecialTokens {
 public:
  SpecialTokens(std::span<const std::string> tokens, std::span<const TokenType> types);
  // Includes the tokens that absorb white space around them.
  SpecialTokens(const TokenizerData& data, std::span<const TokenType> types);

  // The longest of overlapping tokens wins, then the lowest id, then the
  // earliest. Memory is for fragments and the longest chain of overlaps.
  // Fragments are not empty. No match overlaps a literal range.
  std::vector<TextFragment> split(std::string_view text, const EncodeOptions& options) const;

 private:
  struct Match {
    int32_t always = -1, with_special = -1;  // tokens that end at a trie node
  };
  struct Edge {
    uint32_t node;
    uint8_t byte;
    uint32_t child;
    auto operator<=>(const Edge&) const = default;
  };
  struct Occurrence {
    size_t begin;
    uint32_t length;  // 0: there is none
    int32_t token;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;
  // The longest token that begins there, of at most `most` bytes.
  Occurrence longest_at(std::string_view text, size_t begin, size_t most, bool parse_special) const;
  // `chain`: the longest token at every
  // start, in order; only the winners remain.
  void choose(std::string_view text, bool parse_special, std::vector<Occurrence>& chain) const;

  std::vector<Edge> edges_;           // of the trie, by node and byte; node 0 is the root
  std::vector<uint32_t> first_edge_;  // by node, with a sentinel
  std::vector<Match> matches_;        // by node
  std::array<bool, 256> first_{};
  std::vector<int32_t> lstrip_ids_, rstrip_ids_;  // ascending
};

}  // namespace tessera
