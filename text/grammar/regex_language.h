// Converts regular expressions to languages, also with look-ahead and with anchors anywhere.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "text/grammar/language.h"
#include "text/grammar/regex.h"

namespace tessera::grammar {

// As read_regex, for the characters of a JSON string. kUnsupported as there, for
// look-ahead in unbounded repetitions, and for '^' after a possibly empty part.
// `is_excluded`: the language is to be excluded; digits are then those of all
// scripts, as some readers take them, so that the remainder is valid for all.
Result<LanguageId> regex_language(Languages& languages, std::string_view pattern, RegexMatch match,
                                  std::string_view what, bool is_excluded = false);

// RegexShape: whether read_regex accepts it, and bounds on its texts' lengths in characters.
struct RegexShape {
  bool is_simple = true;
  uint32_t shortest = 0, longest = kUnbounded;
};
Result<RegexShape> shape_of_regex(std::string_view pattern, RegexMatch match, std::string_view what);

}  // namespace tessera::grammar
