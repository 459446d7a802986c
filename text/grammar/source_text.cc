#include "text/grammar/source_text.h"

#include <algorithm>

#include "graph/base/text.h"
#include "text/grammar/character_set.h"

namespace tessera::grammar {
namespace {

struct Decoded {
  uint32_t character = SourceText::kNoCharacter;  // for invalid bytes
  size_t size = 0;
};

Decoded decode(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return {};
  uint32_t character = lead & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    character = character << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (character < kLeast[size] || character > kLastCharacter || (character >= 0xD800 && character <= 0xDFFF))
    return {};
  return {character, size};
}

int hex_value(uint32_t character) {
  if (character >= '0' && character <= '9') return static_cast<int>(character - '0');
  if (character >= 'a' && character <= 'f') return static_cast<int>(character - 'a') + 10;
  if (character >= 'A' && character <= 'F') return static_cast<int>(character - 'A') + 10;
  return -1;
}

}  // namespace

size_t valid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = decode(text.substr(at)).size;
    if (size == 0) break;
    at += size;
  }
  return at;
}

Result<SourceText> SourceText::create(std::string_view text, std::string_view what, Place place,
                                      size_t most) {
  if (text.size() > most)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: it has {} bytes, wanted at most {}", what, text.size(), most));
  if (const size_t valid = valid_utf8(text); valid < text.size())
    return Status(StatusCode::kInvalidArgument, format("{}: byte {} is not UTF-8", what, valid));
  return SourceText(text, what, place);
}

uint32_t SourceText::peek() const { return decode(text_.substr(at_)).character; }

uint32_t SourceText::take() {
  const Decoded next = decode(text_.substr(at_));
  at_ += next.size;
  return next.character;
}

bool SourceText::take(std::string_view text) {
  if (!starts_with(text)) return false;
  at_ += text.size();
  return true;
}

Result<uint32_t> SourceText::take_number(uint32_t most) {
  const size_t begin = at_;
  uint64_t number = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9')
    number = std::min<uint64_t>(number * 10 + static_cast<uint64_t>(text_[at_++] - '0'), uint64_t{most} + 1);
  if (number > most) return wanted(format("a number of at most {}", most), begin);
  return static_cast<uint32_t>(number);
}

Result<uint32_t> SourceText::take_hex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = hex_value(peek());
    if (digit < 0) return wanted(format("{} hexadecimal digits", digits));
    value = value << 4 | static_cast<uint32_t>(digit);
    take();
  }
  return value;
}

std::string SourceText::place(size_t at) const {
  if (place_ == Place::kByte) return format("{}, byte {}", what_, at);
  const std::string_view before = text_.substr(0, at);
  const size_t line_begin = before.rfind('\n') + 1;  // 0 in the first line
  return format("{}, line {}, column {}", what_, std::ranges::count(before, '\n') + 1, at - line_begin + 1);
}

Status SourceText::wanted(std::string_view what, size_t at) const {
  const Decoded next = decode(text_.substr(at));
  std::string found = next.size == 0           ? "the end"
                      : next.character == '\n' ? "the end of the line"
                                               : format("'{}'", text_.substr(at, next.size));
  return Status(StatusCode::kInvalidArgument, format("{}: found {}, wanted {}", place(at), found, what));
}

Status SourceText::unsupported(std::string_view what, size_t at) const {
  return Status(StatusCode::kUnsupported, format("{}: {} not supported", place(at), what));
}

}  // namespace tessera::grammar
