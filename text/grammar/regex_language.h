// Regular expressions as languages: also with look-ahead, and with anchors anywhere.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "text/grammar/language.h"
#include "text/grammar/regex.h"

namespace tessera::grammar {

// As read_regex, of the characters of a JSON string. kUnsupported for what read_regex refuses too, for look-ahead in
// repetitions without end, and for '^' behind what may be empty.
// `is_excluded`: the language is of texts that are not wanted. Digits are then those of every script, as some readers of
// patterns take them, so that what is left is right for all.
Result<LanguageId> regex_language(Languages& languages, std::string_view pattern, RegexMatch match,
                                  std::string_view what, bool is_excluded = false);

// Whether read_regex takes it, and bounds of the lengths of its texts, in characters.
struct RegexShape {
  bool is_simple = true;
  uint32_t shortest = 0, longest = kUnbounded;
};
Result<RegexShape> shape_of_regex(std::string_view pattern, RegexMatch match, std::string_view what);

}  // namespace tessera::grammar
