// Origin: where a character of a text comes from, as 32 bits: a source, and whether the character was written inside
// `{% generation %}`.
#pragma once

#include <cstdint>

namespace tessera::jinja {

using Source = uint32_t;
inline constexpr Source kTemplate = 0;      // the template wrote it
inline constexpr Source kData = 1;          // the caller's data, from anywhere
inline constexpr Source kFirstMessage = 2;  // kFirstMessage + i: message i of the caller's

struct Origin {
  Source source = kTemplate;
  bool generation = false;
  bool operator==(const Origin&) const = default;
};

// The source of what is made of both.
inline Source join_sources(Source a, Source b) {
  if (a == kTemplate || a == b) return b;
  return b == kTemplate ? a : kData;
}

}  // namespace tessera::jinja
