#include "text/grammar/regex_class.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::grammar {
namespace {

CharacterSet narrow_class(char lower) {
  if (lower == 'd') return CharacterSet({{'0', '9'}});
  if (lower == 'w') return CharacterSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return CharacterSet({{'\t', '\r'}, {' ', ' '}});
}

CharacterSet unicode_white_space() {
  return CharacterSet({{'\t', '\r'},
                       {0x1C, 0x20},
                       {0x85, 0x85},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}

// A low surrogate, written \uDC00, after a high one.
Result<uint32_t> join_surrogates(SourceText& text, uint32_t high, size_t begin) {
  if (high < 0xD800 || high > 0xDFFF) return high;
  if (high <= 0xDBFF && text.take("\\u")) {
    TSR_ASSIGN_OR_RETURN(const uint32_t low, text.take_hex(4));
    if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }
  return text.wanted("both surrogates of a character", begin);
}

Result<uint32_t> read_braced_hex(SourceText& text, size_t begin) {
  uint32_t value = 0;
  int digits = 0;
  while (!text.take("}")) {
    TSR_ASSIGN_OR_RETURN(const uint32_t digit, text.take_hex(1));
    value = value << 4 | digit;
    if (++digits > 6 || value > kLastCharacter) return text.wanted("a character up to 10FFFF", begin);
  }
  if (digits == 0 || (value >= 0xD800 && value <= 0xDFFF))
    return text.wanted("the digits of a character", begin);
  return value;
}

}  // namespace

CharacterSet class_of_letter(char letter, bool is_negated, TextForm form) {
  const char lower = static_cast<char>(letter | 0x20);
  const bool is_complement = letter != lower;
  const bool is_excluded = is_complement != is_negated;
  CharacterSet set = lower == 's' && is_excluded && form == TextForm::kJsonString ? unicode_white_space()
                                                                                  : narrow_class(lower);
  return is_complement ? set.complement() : set;
}

Result<uint32_t> read_escaped_character(SourceText& text, size_t begin, bool is_in_class) {
  constexpr std::string_view kLetters = "tnrfv", kMeant = "\t\n\r\f\v";
  const uint32_t letter = text.peek();
  if (letter == SourceText::kNoCharacter) return text.wanted("what is escaped");
  if (letter < 0x80)
    if (const size_t at = kLetters.find(static_cast<char>(letter)); at != std::string_view::npos) {
      text.take();
      return static_cast<uint32_t>(kMeant[at]);
    }
  if (letter >= '1' && letter <= '9') return text.unsupported("back-references are", begin);
  if (letter == 'k') return text.unsupported("back-references are", begin);
  if (letter == 'p' || letter == 'P')
    return text.unsupported("classes of Unicode properties (\\p) are", begin);
  if (letter == 'b' && is_in_class) {
    text.take();
    return 8;
  }
  if (letter == 'b' || letter == 'B') return text.unsupported("word boundaries (\\b) are", begin);
  if (letter == 'A' || letter == 'Z' || letter == 'z' || letter == 'G')
    return text.unsupported("anchors other than ^ and $ are", begin);
  if (letter == '0') {
    text.take();
    if (text.peek() >= '0' && text.peek() <= '9') return text.unsupported("octal escapes are", begin);
    return 0;
  }
  if (text.take("x{") || text.take("u{")) return read_braced_hex(text, begin);
  if (text.take("x")) return text.take_hex(2);
  if (text.take("u")) {
    TSR_ASSIGN_OR_RETURN(const uint32_t unit, text.take_hex(4));
    return join_surrogates(text, unit, begin);
  }
  if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
    return text.wanted("one of \\d \\D \\w \\W \\s \\S \\t \\n \\r \\f \\v \\0 \\x \\u or an escaped sign");
  return text.take();
}

Result<CharacterSet> read_class(SourceText& text, size_t begin, TextForm form) {
  const bool is_negated = text.take("^");
  std::vector<CharacterRange> ranges;
  const auto add = [&](const CharacterSet& set) {
    ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
  };
  // A character, or nullopt after adding an escape's class.
  const auto read_item = [&]() -> Result<std::optional<uint32_t>> {
    const size_t at = text.at();
    if (text.starts_with("[:") || text.starts_with("[.") || text.starts_with("[="))
      return text.unsupported("named classes like [:alpha:] are", at);
    if (!text.take("\\")) return std::optional(text.take());
    if (is_class_letter(text.peek())) {
      add(class_of_letter(static_cast<char>(text.take()), is_negated, form));
      return std::optional<uint32_t>();
    }
    TSR_ASSIGN_OR_RETURN(const uint32_t character, read_escaped_character(text, at, true));
    return std::optional(character);
  };
  if (text.starts_with("]")) return text.wanted("a character of the class ('\\]' for a bracket)");
  while (!text.take("]")) {
    if (text.is_at_end()) return text.wanted("the ']' of the class that begins here", begin);
    const size_t at = text.at();
    TSR_ASSIGN_OR_RETURN(const std::optional<uint32_t> first, read_item());
    if (!first) continue;
    std::optional<uint32_t> last = first;
    if (text.starts_with("-") && !text.starts_with("-]")) {
      text.take();
      if (text.is_at_end()) return text.wanted("the ']' of the class that begins here", begin);
      TSR_ASSIGN_OR_RETURN(last, read_item());
      if (!last) {  // "a-\d": a literal minus
        ranges.push_back({'-', '-'});
        last = first;
      }
    }
    if (*last < *first) return text.wanted("a range in ascending order", at);
    ranges.push_back({*first, *last});
  }
  CharacterSet set(std::move(ranges));
  return is_negated ? set.complement() : set;
}

}  // namespace tessera::grammar
