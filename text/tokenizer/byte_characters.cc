#include "text/tokenizer/byte_characters.h"

#include <array>
#include <string>

namespace tessera {
namespace {

struct ByteCharacters {
  std::array<std::string, 256> texts;
  std::array<int16_t, 0x144> bytes;

  ByteCharacters() {
    bytes.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const int code = printable ? byte : next++;
      bytes[static_cast<size_t>(code)] = static_cast<int16_t>(byte);
      std::string& text = texts[static_cast<size_t>(byte)];
      if (code < 0x80) {
        text = static_cast<char>(code);
      } else {
        text = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
  }
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters kCharacters;
  return kCharacters;
}

}  // namespace

std::string_view byte_character(uint8_t byte) { return byte_characters().texts[byte]; }

int byte_of_character(int32_t code) {
  const auto& bytes = byte_characters().bytes;
  return code >= 0 && static_cast<size_t>(code) < bytes.size() ? bytes[static_cast<size_t>(code)] : -1;
}

}  // namespace tessera
