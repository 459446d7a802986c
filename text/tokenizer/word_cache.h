// WordCache: tokens of words that a tokenizer has encoded, since texts repeat
// words. Holds a bounded number of short words, the first ones. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

// WordToken: a token of a word, and its first byte.
struct WordToken {
  int32_t id;
  uint32_t begin;
};

class WordCache {
 public:
  // The cached tokens of `word`, valid until the next `keep`; null: none. They may be empty.
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
