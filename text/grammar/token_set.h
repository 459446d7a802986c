// TokenSet: a set of tokens, as a list if small and as bits if large. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera::grammar {

class TokenSet {
 public:
  TokenSet() = default;
  TokenSet(std::vector<int32_t> ids, size_t mask_words) : ids_(std::move(ids)) {
    if (ids_.size() <= mask_words) {
      ids_.shrink_to_fit();
      return;
    }
    words_.resize(mask_words);
    for (const int32_t id : ids_) words_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    ids_ = {};
  }

  void add_to(std::span<uint32_t> mask) const {
    for (const int32_t id : ids_) mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    for (size_t i = 0; i < words_.size(); ++i) mask[i] |= words_[i];
  }
  size_t bytes() const { return sizeof *this + (ids_.capacity() + words_.capacity()) * sizeof(uint32_t); }

 private:
  std::vector<int32_t> ids_;
  std::vector<uint32_t> words_;
};

}  // namespace tessera::grammar
