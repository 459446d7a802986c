// WordCache: tokens of words that one tokenizer has encoded: texts repeat most of their words. It holds a bounded number
// of short words, the first it is given. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

// A token of a word, and the byte of the word at which it begins.
struct WordToken {
  int32_t id;
  uint32_t begin;
};

class WordCache {
 public:
  // The tokens kept for `word`, valid until the next `keep`; null for none. A word may have no tokens.
  const std::vector<WordToken>* find(std::string_view word) const {
    const auto found = words_.find(word);
    return found == words_.end() ? nullptr : &found->second;
  }

  void keep(std::string_view word, std::span<const WordToken> tokens) {
    if (word.size() > kLongest || words_.size() >= kMost) return;
    words_.try_emplace(std::string(word), tokens.begin(), tokens.end());
  }

 private:
  static constexpr size_t kLongest = 48, kMost = size_t{1} << 16;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  std::unordered_map<std::string, std::vector<WordToken>, Hash, std::equal_to<>> words_;
};

}  // namespace tessera
