#include "serialize/export/byte_characters.h"

namespace tessera {

std::vector<std::string> byte_level_characters() {
  std::vector<std::string> characters;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const int code = printable ? byte : next++;
    if (code < 0x80)
      characters.push_back({static_cast<char>(code)});
    else
      characters.push_back({static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))});
  }
  return characters;
}

}  // namespace tessera
