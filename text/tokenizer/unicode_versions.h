// Unicode versions. `tokenizers` uses several: 16 for regular expressions, 9 for normal forms
// and scripts, 8 for categories. The libraries here have one (Debian 12: 14), so the differences
// are corrected. A character of unknown version counts as one of the first version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

bool is_after_unicode_8(int32_t code);
bool is_after_unicode_9(int32_t code);

// For a character of Unicode 15 or 16, one of 14 with the same category and size; else itself.
int32_t known_character(int32_t code);
// The text with such characters replaced; nullopt if there are none.
std::optional<std::string> with_known_characters(std::string_view text);

}  // namespace tessera
