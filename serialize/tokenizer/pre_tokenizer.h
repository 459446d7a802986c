// PreTokenizer: cuts text into the words inside which byte-pair merges happen, by the pattern that the
// vocabulary was trained with. Immutable; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// One way of cutting, known under several names in vocabulary files.
struct SplitPattern {
  std::vector<std::string_view> names;
  // Applied one after the other: each cuts the pieces that the previous one left. Matches and what lies
  // between them both become pieces.
  std::vector<std::string_view> patterns;
  bool whole_words_first = false;  // a word that is a token is taken as it is, whatever the merges say
};
std::span<const SplitPattern> known_split_patterns();

class PreTokenizer {
 public:
  // An empty name means "default". An unknown one is kUnsupported, with the names that are known.
  static Result<std::unique_ptr<const PreTokenizer>> create(std::string_view name);
  ~PreTokenizer();

  // Non-empty views into `text`, in order, that add up to all of it, whatever bytes it holds.
  std::vector<std::string_view> split(std::string_view text) const;
  bool whole_words_first() const { return whole_words_first_; }

 private:
  struct Compiled;
  PreTokenizer();
  std::vector<Compiled> compiled_;
  bool whole_words_first_ = false;
};

}  // namespace tessera
