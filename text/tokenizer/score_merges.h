// ScoreMerges: SentencePiece's BPE. Repeatedly merges the adjacent symbols whose concatenation is
// the piece with the highest score, leftmost first. Control, unknown and byte tokens never result.
// An unused token may be an intermediate result, and is split at the end. Immutable; any thread.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace tessera {

class ScoreMerges {
 public:
  struct Symbol {
    uint32_t begin, size;  // size 0: merged into its left neighbour
    int32_t previous, next;
    bool is_whole;  // never merges
  };
  struct Pair {
    float score;
    int32_t left, right;
    uint32_t size;  // combined size when the pair was formed; detects outdated pairs
    bool operator<(const Pair& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };
  // Buffers of one thread.
  struct Scratch {
    std::vector<Symbol> symbols;  // of the text, set before `merge`
    std::priority_queue<Pair> queue;
    std::unordered_map<std::string_view, uint32_t> halves;  // unused token -> bytes of its left half
    std::vector<std::string_view> pieces;

    void add(size_t begin, size_t size, bool is_whole) {
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back(
          {static_cast<uint32_t>(begin), static_cast<uint32_t>(size), index - 1, -1, is_whole});
      if (index > 0) symbols[static_cast<size_t>(index) - 1].next = index;
    }
  };

  ScoreMerges() = default;
  // Views into the data. `types`: of the first tokens, which may be results.
  ScoreMerges(const TokenizerData& data, std::span<const TokenType> types);

  // The id of a piece; -1: none.
  int32_t find(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? -1 : found->second;
  }
  // Size of a text's first word, with leading spaces (▁); words merge independently.
  size_t end_of_word(std::string_view text) const;
  // Merges scratch.symbols of a text below 2^30 bytes, and calls put(piece) for its pieces, in order.
  template <class Put>
  void merge(std::string_view text, Scratch& scratch, Put&& put) const {
    merge(text, scratch);
    for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = scratch.symbols[static_cast<size_t>(i)];
      scratch.pieces.assign(1, text.substr(symbol.begin, symbol.size));
      while (!scratch.pieces.empty()) {
        const std::string_view piece = scratch.pieces.back();
        scratch.pieces.pop_back();
        if (auto half = scratch.halves.find(piece); half != scratch.halves.end()) {
          scratch.pieces.push_back(piece.substr(half->second));
          scratch.pieces.push_back(piece.substr(0, half->second));
        } else {
          put(piece);
        }
      }
    }
  }

 private:
  void merge(std::string_view text, Scratch& scratch) const;

  std::span<const float> scores_;
  std::vector<bool> is_unused_;                        // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // of possible results
  size_t longest_ = 0;
  bool words_apart_ = true;  // no token has a space inside
};

}  // namespace tessera
