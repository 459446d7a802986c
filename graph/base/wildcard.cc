#include "graph/base/wildcard.h"

namespace tessera {

bool matches_wildcard(std::string_view pattern, std::string_view name) {
  // The last '*' passed, and the length that it matched: where the rest fails it matches one
  // more. No earlier star need match more: it took the earliest match of the text up to this one.
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace tessera
