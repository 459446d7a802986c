#include "graph/base/quote.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the start of the character at `at`: `at`, or up to three bytes before it.
size_t character_at(std::string_view text, size_t at) {
  size_t begin = at;
  while (at - begin < 3 && begin > 0 && continues_character(text[begin])) --begin;
  return begin;
}

}  // namespace

std::string quote(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  const std::string between = format("… [{} bytes] …", text.size());
  const size_t kept = std::max(most, between.size() + 16) - between.size();
  const size_t head = character_at(text, kept - kept / 3);
  size_t tail = text.size() - kept / 3;
  while (tail < text.size() && continues_character(text[tail])) ++tail;
  return std::string(text.substr(0, head)) + between + std::string(text.substr(tail));
}

}  // namespace tessera
