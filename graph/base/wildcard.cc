#include "graph/base/wildcard.h"

namespace tessera {

bool matches_wildcard(std::string_view pattern, std::string_view name) {
  // The last '*' passed, and how much of the name it stood for: where the rest fails it stands for one more.
  // No star before it need stand for more: it took the earliest match of what lies between them.
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
