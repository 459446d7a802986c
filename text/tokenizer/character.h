// UTF-8 characters, and the classes used by normalizers and pre-tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Character: a code point and its size in bytes. In invalid UTF-8 the code is -1 and the size that of `first_character`.
struct Character {
  int32_t code = -1;
  size_t size = 1;
};
Character character_at(std::string_view text, size_t at);       // at < text.size()
Character character_before(std::string_view text, size_t end);  // end > 0
void append_character(std::string& text, int32_t code);

bool is_white_space(int32_t code);  // Unicode's White_Space
bool is_numeric(int32_t code);      // N
bool is_punctuation(int32_t code);  // P of Unicode 8, and ASCII symbols
bool is_word(int32_t code);         // Alphabetic, M, Nd, Pc and the joiners
bool is_mark(int32_t code);         // M of Unicode 9
bool is_nonspacing_mark(int32_t code);  // of Unicode 8
bool is_other(int32_t code);            // Cc, Cf, Co of Unicode 8
bool is_chinese(int32_t code);  // ideograph blocks named by BERT
// Appends the lower-case form, two characters for U+0130.
void append_lower_case(std::string& text, int32_t code);

}  // namespace tessera
