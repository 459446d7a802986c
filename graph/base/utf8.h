// UTF-8 as Unicode's table 3-7 defines it: well-formed characters, and ill-formed parts,
// each decoded as U+FFFD (maximal subparts, as Python's bytes.decode("utf-8", "replace")).
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

struct Utf8Part {
  size_t size = 0;            // bytes, at least 1
  bool is_character = false;  // otherwise one broken part
  bool is_open = false;       // broken because the text ends: more bytes may complete it
};

// Returns the part that begins at byte `at`, which is less than bytes.size().
constexpr Utf8Part utf8_part(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {1, true, false};
  const size_t size = lead >= 0xc2 && lead < 0xe0   ? 2
                      : lead >= 0xe0 && lead < 0xf0 ? 3
                      : lead >= 0xf0 && lead < 0xf5 ? 4
                                                    : 0;
  if (size == 0) return {1, false, false};
  for (size_t i = 1; i < size; ++i) {
    if (at + i == bytes.size()) return {i, false, true};
    // Lead bytes that narrow the second byte: no overlong forms, no surrogates, nothing past U+10FFFF.
    const bool is_second = i == 1;
    const unsigned low = is_second && lead == 0xe0 ? 0xa0 : is_second && lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = is_second && lead == 0xed ? 0x9f : is_second && lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
  }
  return {size, true, false};
}

// Returns the bytes of an incomplete character at the end of the text: 0 to 3.
constexpr size_t unfinished_utf8(std::string_view bytes) {
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const Utf8Part part = utf8_part(bytes, bytes.size() - back);
    if (part.is_open && part.size == back) return back;
    if ((static_cast<unsigned char>(bytes[bytes.size() - back]) & 0xc0) != 0x80) return 0;
  }
  return 0;
}

}  // namespace tessera
