// Classes of characters in regular expressions: [a-z], \d, and single escaped characters.
#pragma once

#include <cstdint>

#include "graph/base/result.h"
#include "text/grammar/json_text.h"
#include "text/grammar/source_text.h"

namespace tessera::grammar {

// \d \D \w \W \s \S by their letter, of ASCII. Where white space is excluded from JSON strings it is Unicode's, so that
// every reader of the pattern agrees.
CharacterSet class_of_letter(char letter, bool is_negated, TextForm form);
inline bool is_class_letter(uint32_t character) {
  return character == 'd' || character == 'D' || character == 'w' || character == 'W' || character == 's' ||
         character == 'S';
}

// The character that an escape stands for, from after the backslash at `begin` on.
Result<uint32_t> read_escaped_character(SourceText& text, size_t begin, bool is_in_class);
// From after the opening bracket at `begin` up to and with the closing one.
Result<CharacterSet> read_class(SourceText& text, size_t begin, TextForm form);

}  // namespace tessera::grammar
