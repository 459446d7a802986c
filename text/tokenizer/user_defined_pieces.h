// UserDefinedPieces: a SentencePiece vocabulary's user-defined tokens, which are never split or joined. Immutable; any thread.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// LiteralBytes: ranges of a text in which special tokens are not recognised, with a test for overlap.
class LiteralBytes {
 public:
  explicit LiteralBytes(std::span<const TextRange> ranges) : ranges_(ranges) {}
  bool overlap(size_t begin, size_t end) const;
  bool is_empty() const { return ranges_.empty(); }

 private:
  std::span<const TextRange> ranges_;  // ascending and disjoint
};

class UserDefinedPieces {
 public:
  // From the first `pieces` tokens; views into data.tokens.
  UserDefinedPieces(const TokenizerData& data, size_t pieces);

  // Size of the longest token that `text` begins with; 0: none. `may_match(size, id)` may decline.
  template <class MayMatch>
  size_t longest_prefix(std::string_view text, MayMatch&& may_match) const {
    size_t longest = 0;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = 0; end < text.size();) {
      node = trie_.next(node, static_cast<uint8_t>(text[end++]));
      if (node == ByteTrie::kNone) break;
      if (const int32_t id = trie_.value(node); id >= 0 && may_match(end, id)) longest = end;
    }
    return longest;
  }
  bool is_empty() const { return trie_.is_empty(); }
  // Whether the token is only whitespace: it cannot imitate a control token, so literal text may be encoded as it.
  bool is_blank(int32_t id) const { return blank_[static_cast<size_t>(id)]; }

 private:
  ByteTrie trie_;
  std::vector<bool> blank_;  // by id
};

}  // namespace tessera
