// WordCache: ids of words already encoded in one call of `encode`: texts repeat most of their words. Holds a
// bounded number of short words, the first it is given. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

class WordCache {
 public:
  // The ids kept for `word`, valid until the next `keep`; null for none. A word may have no ids.
  const std::vector<int32_t>* find(std::string_view word) const {
    const auto found = words_.find(word);
    return found == words_.end() ? nullptr : &found->second;
  }

  void keep(std::string_view word, std::span<const int32_t> ids) {
    if (word.size() > kLongest || words_.size() >= kMost) return;
    words_.try_emplace(std::string(word), ids.begin(), ids.end());
  }

 private:
  static constexpr size_t kLongest = 48, kMost = size_t{1} << 16;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> words_;
};

}  // namespace tessera
