// Parts of a tokenizer.model, and folders that are maps of texts.
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "serialize/import/tokenizer_folder.h"
#include "text/tokenizer/hugging_face.h"

namespace tessera::testing {

inline std::string field(int number, std::string_view bytes) {
  std::string out{static_cast<char>(number << 3 | 2)};
  for (size_t size = bytes.size(); true; size >>= 7) {
    out += static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0));
    if (size <= 0x7f) break;
  }
  return out.append(bytes);
}

// type: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
inline std::string piece(std::string_view text, float score, char type) {
  char raw[4];
  std::memcpy(raw, &score, sizeof raw);
  return field(1, field(1, text) + "\x15" + std::string(raw, 4) + "\x18" + type);
}

// A number below 128 of a message with fields beyond 15, too.
inline std::string number(int number, int value) {
  std::string out;
  const int tag = number << 3;
  if (tag < 0x80) {
    out += static_cast<char>(tag);
  } else {
    out += static_cast<char>((tag & 0x7f) | 0x80);
    out += static_cast<char>(tag >> 7);
  }
  return out + static_cast<char>(value);
}

inline ReadFolderFile files(std::map<std::string, std::string> contents) {
  return [contents](const std::string& name) -> Result<std::optional<std::string>> {
    const auto found = contents.find(name);
    return found == contents.end() ? std::optional<std::string>() : std::optional(found->second);
  };
}

}  // namespace tessera::testing
