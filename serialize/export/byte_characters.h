// The characters that stand for bytes in the tokens of byte-level BPE.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// By byte: itself where it is printable Latin-1, else the next free character from U+0100 on; in UTF-8.
std::vector<std::string> byte_level_characters();

}  // namespace tessera
