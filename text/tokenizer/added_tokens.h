// AddedTokens: finds the tokens that tokenizer files add to a model's vocabulary, before and after a text is
// normalized. The leftmost one wins, then the longest. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;             // not within a word
  bool lstrip = false, rstrip = false;  // takes the white space before it, after it
  bool normalized = true;               // found in the normalized text, by its own normalized form
  bool special = false;                 // a control token: found on request, and not shown
  bool in_model = false;                // one of the model's vocabulary too
};

inline constexpr size_t kLongestAddedToken = 1024;  // bytes

class AddedTokens {
 public:
  AddedTokens() = default;
  // kUnsupported for longer tokens, and what the normalizer reports.
  static Result<AddedTokens> create(std::span<const AddedToken> tokens, const Normalizer& normalizer);

  // Those of the text as it is. No fragment is empty, and none of a token overlaps a literal range.
  std::vector<TextFragment> split(std::string_view text, const EncodeOptions& options) const;
  // Those of a normalized text, whose origins are needed where there are literal ranges.
  std::vector<TextFragment> split_normalized(const NormalizedText& text, const EncodeOptions& options) const;
  // The text of a token that is found in its normalized form, which differs from its content: that form. Null for others.
  const std::string* normalized_text(int32_t id) const {
    const auto found = normalized_texts_.find(id);
    return found == normalized_texts_.end() ? nullptr : &found->second;
  }
  bool has_normalized() const { return !normalized_.trie.is_empty(); }

 private:
  struct Set {
    std::vector<AddedToken> tokens;
    ByteTrie trie;  // of indices into tokens
  };
  static std::vector<TextFragment> split(const Set& set, std::string_view text,
                                         std::span<const size_t> origins, const EncodeOptions& options);
  Set exact_, normalized_;
  std::unordered_map<int32_t, std::string> normalized_texts_;
};

}  // namespace tessera
