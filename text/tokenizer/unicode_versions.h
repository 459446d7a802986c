// Versions of Unicode. `tokenizers` has tables of several: of 16 for its regular expressions, of 9 for normal forms and
// scripts, of 8 for categories. The libraries used here have those of one (Debian 12: 14), so that these differences are
// made up for. A character of an unknown version counts as one of the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

bool is_after_unicode_8(int32_t code);
bool is_after_unicode_9(int32_t code);

// A character of Unicode 14 with the same general category and as many bytes, for one of 15 or 16; else itself.
int32_t known_character(int32_t code);
// The text with these in place of characters of 15 and 16; nothing where it has none.
std::optional<std::string> with_known_characters(std::string_view text);

}  // namespace tessera
