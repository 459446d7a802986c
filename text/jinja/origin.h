// Origin: the origin of a character as 32 bits: a source,
// and whether it was written inside `{% generation %}`.
#pragma once

#include <cstdint>

namespace tessera::jinja {

using Source = uint32_t;
inline constexpr Source kTemplate = 0;      // the template's text
inline constexpr Source kData = 1;          // the caller's data, any part
inline constexpr Source kFirstMessage = 2;  // kFirstMessage + i: message i of the caller

struct Origin {
  Source source = kTemplate;
  bool generation = false;
  bool operator==(const Origin&) const = default;
};

// The source of a combination of both.
inline Source join_sources(Source a, Source b) {
  if (a == kTemplate || a == b) return b;
  return b == kTemplate ? a : kData;
}

}  // namespace tessera::jinja
