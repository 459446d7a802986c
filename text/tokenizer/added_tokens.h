// AddedTokens: finds the tokens that tokenizer files add to a model's vocabulary, before
// and after normalization. The leftmost, then the longest wins. Immutable; any thread.
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
  bool lstrip = false, rstrip = false;  // includes white space before it, after it
  bool normalized = true;               // matched in the normalized text, in normalized form
  bool special = false;                 // a control token: matched on request, hidden in output
  bool in_model = false;                // also in the model's vocabulary
};

inline constexpr size_t kLongestAddedToken = 1024;  // bytes

class AddedTokens {
 public:
  AddedTokens() = default;
  // kUnsupported for longer tokens; errors of the normalizer.
  static Result<AddedTokens> create(std::span<const AddedToken> tokens, const Normalizer& normalizer);

  // Splits the original text. Fragments are not empty, and no token overlaps a literal range.
  std::vector<TextFragment> split(std::string_view text, const EncodeOptions& options) const;
  // Splits the normalized text, which needs origins if there are literal ranges.
  std::vector<TextFragment> split_normalized(const NormalizedText& text, const EncodeOptions& options) const;
  // The normalized form that the token is matched by, if it differs from the content; else null.
  const std::string* normalized_text(int32_t id) const {
    const auto found = normalized_texts_.find(id);
    return found == normalized_texts_.end() ? nullptr : &found->second;
  }
  bool has_normalized() const { return !normalized_.trie.is_empty(); }

 private:
  struct Set {
    std::vector<AddedToken> tokens;
    ByteTrie trie;  // values are indices into tokens
  };
  static std::vector<TextFragment> split(const Set& set, std::string_view text,
                                         std::span<const size_t> origins, const EncodeOptions& options);
  Set exact_, normalized_;
  std::unordered_map<int32_t, std::string> normalized_texts_;
};

}  // namespace tessera
