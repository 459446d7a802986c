// Python's character predicates and case conversions. Characters are code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/text.h"

namespace tessera::jinja {

bool is_alphabetic(uint32_t code);
bool is_decimal(uint32_t code);
bool is_digit(uint32_t code);  // includes superscripts
bool is_numeric(uint32_t code);
bool is_upper(uint32_t code);
bool is_lower(uint32_t code);
bool is_cased(uint32_t code);
bool is_printable(uint32_t code);   // not escaped by repr
bool is_word(uint32_t code);        // \w of a regular expression
bool is_name_begin(uint32_t code);  // first character of an identifier
bool is_name_rest(uint32_t code);

enum class Case : uint8_t { kUpper, kLower, kTitle };
// A character may become several.
void append_case(std::string& out, uint32_t code, Case to);

enum class CaseStyle : uint8_t { kUpper, kLower, kCapitalize, kTitle, kSwap, kFold };
// As str.upper, lower, capitalize, title, swapcase and casefold. Characters keep their origin.
Result<Text> change_case(Budget& budget, const Text& text, CaseStyle style);

}  // namespace tessera::jinja
