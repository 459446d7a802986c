// The printable characters for bytes in byte-level vocabularies:
// printable Latin-1 bytes are themselves, others are U+0100 and up.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

std::string_view byte_character(uint8_t byte);
// The byte of a character, or -1.
int byte_of_character(int32_t code);

}  // namespace tessera
