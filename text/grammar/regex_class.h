// Character classes in regular expressions: [a-z], \d, and escaped characters.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "text/grammar/json_text.h"
#include "text/grammar/source_text.h"

namespace tessera::grammar {

// \d \D \w \W \s \S by letter, for ASCII. When excluding from JSON
// strings, white space is Unicode's, so that all readers agree.
CharacterSet class_of_letter(char letter, bool is_negated, TextForm form);
inline bool is_class_letter(uint32_t character) {
  return character == 'd' || character == 'D' || character == 'w' || character == 'W' || character == 's' ||
         character == 'S';
}

// The character of an escape; reads from after the backslash at `begin`.
Result<uint32_t> read_escaped_character(SourceText& text, size_t begin, bool is_in_class);
// Reads from after the opening bracket at `begin` through the closing one.
Result<CharacterSet> read_class(SourceText& text, size_t begin, TextForm form);

}  // namespace tessera::grammar
