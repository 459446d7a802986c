// WordSplitter: splits text into the words inside which byte-pair merges happen, by the pattern that the
// vocabulary was trained with. Immutable; any thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/pattern.h"

namespace tessera {

// SplitPattern: one way of splitting, under its names in vocabulary files.
struct SplitPattern {
  std::vector<std::string_view> names;
  // Applied in order: each splits the pieces of the previous
  // one. Matches and the text between them become pieces.
  std::vector<std::string_view> patterns;
  bool whole_words_first = false;  // a word that is itself a token is emitted whole, without applying merges
};
std::span<const SplitPattern> known_split_patterns();

class WordSplitter {
 public:
  // Empty `name`: "default". kUnsupported for an unknown one, with the known names.
  static Result<std::unique_ptr<const WordSplitter>> create(std::string_view name);
  ~WordSplitter();

  // Calls `word` with contiguous non-empty views into `text`, in order,
  // for any bytes. kInvalidArgument if a pattern takes too many steps.
  Status split(std::string_view text, const std::function<void(std::string_view)>& word) const;
  bool whole_words_first() const { return whole_words_first_; }

 private:
  WordSplitter();
  static Status split_by(std::span<const Pattern> patterns, std::string_view text,
                         const std::function<void(std::string_view)>& word);
  std::vector<Pattern> patterns_;
  bool whole_words_first_ = false;
};

}  // namespace tessera
