// Pattern: a tokenizer file's regular expression in Oniguruma's
// syntax (Ruby's), run by PCRE2. Immutable; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

class Pattern {
 public:
  // kInvalidArgument, with reason and place, for syntax errors and expressions that PCRE2 cannot run.
  static Result<Pattern> create(std::string_view expression);
  // Matches `text` literally.
  static Result<Pattern> literal(std::string_view text);

 private:
  friend class PatternSearch;
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;  // immutable, so copies of a Pattern share it
};

// PatternSearch: non-overlapping matches of a pattern, leftmost first.
// Skips an empty match directly after another. One thread; borrows both.
class PatternSearch {
 public:
  PatternSearch(const Pattern& pattern, std::string_view text);
  ~PatternSearch();
  PatternSearch(const PatternSearch&) = delete;
  PatternSearch& operator=(const PatternSearch&) = delete;

  // False after the last match, or after too many steps; status() is then not OK.
  bool next();
  size_t begin() const { return begin_; }
  size_t end() const { return end_; }
  int group() const { return group_; }  // the last capture group that matched; 0: none
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
  double begin_seconds_ = -1;  // the thread's CPU time; -1: not read yet
  Status status_;
};

// Translates to PCRE2's syntax. Most is equal; PCRE2's \s, \w, \b, \h, \v
// and (?m) differ, and it lacks nested classes and intersections (&&).
Result<std::string> pcre_syntax(std::string_view oniguruma);

}  // namespace tessera
