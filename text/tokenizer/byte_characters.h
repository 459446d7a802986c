// The printable characters by which byte-level vocabularies write bytes: a byte that is printable Latin-1 is itself,
// the others are those from U+0100 on.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

std::string_view byte_character(uint8_t byte);
// The byte that a character of UTF-8 stands for, or -1.
int byte_of_character(int32_t code);

}  // namespace tessera
