// Pattern: a regular expression of a tokenizer file, in Oniguruma's syntax (Ruby's), run by PCRE2. Immutable; any
// thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

class Pattern {
 public:
  // kInvalidArgument, with the reason and the place, for what is no expression or is none that PCRE2 can run.
  static Result<Pattern> create(std::string_view expression);
  // Finds `text` itself.
  static Result<Pattern> literal(std::string_view text);

 private:
  friend class PatternSearch;
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;  // immutable, so copies of a Pattern share it
};

// The matches of a pattern in a text, leftmost first, which do not overlap. An empty one directly after another match
// is left out. One thread; borrows both.
class PatternSearch {
 public:
  PatternSearch(const Pattern& pattern, std::string_view text);
  ~PatternSearch();
  PatternSearch(const PatternSearch&) = delete;
  PatternSearch& operator=(const PatternSearch&) = delete;

  // False after the last match, and where the pattern takes too many steps: then status() is not OK.
  bool next();
  size_t begin() const { return begin_; }
  size_t end() const { return end_; }
  int group() const { return group_; }  // the last capture group that took part, 0 for none
  const Status& status() const { return status_; }

 private:
  bool match_at(size_t position);
  bool has_time();

  struct State;
  const Pattern& pattern_;
  const std::string_view text_;
  std::unique_ptr<State> state_;
  size_t position_ = 0, begin_ = 0, end_ = 0;
  int group_ = 0;
  bool matched_ = false;
  uint32_t matches_ = 0;
  double begin_seconds_ = -1;  // of the thread's own time; -1: not asked yet
  Status status_;
};

// The same expression in PCRE2's syntax. Both read most of it alike; PCRE2's \s, \w, \b, \h, \v and (?m) mean something
// else, and it has no classes within classes and no intersections (&&).
Result<std::string> pcre_syntax(std::string_view oniguruma);

}  // namespace tessera
