#include "text/tokenizer/character.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/tokenizer/kinds.h"
#include "text/tokenizer/unicode_versions.h"

namespace tessera {
namespace {

struct CodeRange {
  int32_t first, last;
};

template <size_t N>
bool is_in(const CodeRange (&ranges)[N], int32_t code) {
  return std::ranges::any_of(
      ranges, [code](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

Character character_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1};
  utf8proc_int32_t code = -1;
  const auto size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                       static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4)), &code);
  if (size > 0) return {code, static_cast<size_t>(size)};
  return {-1, first_character(text.substr(at))};
}

Character character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  const Character character = character_at(text, begin);
  return begin + character.size == end ? character : Character{-1, 1};
}

void append_character(std::string& text, int32_t code) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(code, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

bool is_white_space(int32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_numeric(int32_t code) {
  if ((code >= 0x11de0 && code <= 0x11de9) || (code >= 0x16ff4 && code <= 0x16ff6))
    return true;  // of Unicode 17
  const auto category = utf8proc_category(known_character(code));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(int32_t code) {
  if (code < 0) return false;
  if (code < 0x80)
    return code > ' ' && code < 0x7f && !(code >= '0' && code <= '9') &&
           !((code | 32) >= 'a' && (code | 32) <= 'z');
  if (code == 0x166d || code == 0x111c9) return true;  // until Unicode 11
  const auto category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO && !is_after_unicode_8(code);
}

bool is_word(int32_t code) {
  if (code < 0) return false;
  if (code < 0x80)
    return (code >= '0' && code <= '9') || ((code | 32) >= 'a' && (code | 32) <= 'z') || code == '_';
  const auto category = utf8proc_category(known_character(code));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;
  if (category == UTF8PROC_CATEGORY_PC || code == 0x200c || code == 0x200d) return true;
  constexpr CodeRange kAlphabeticSymbols[] = {
      {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  return is_in(kAlphabeticSymbols, code);
}

// Characters whose category has changed are listed.
bool is_mark(int32_t code) {
  if (code == 0x1cf2 || code == 0x1cf3) return true;
  const auto category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME && code != 0x111c9 &&
         !is_after_unicode_9(code);
}

bool is_nonspacing_mark(int32_t code) {
  if (code == 0x1734) return true;
  constexpr int32_t kOthersThen[] = {0x1885, 0x1886, 0xa9bd, 0x111c9};
  return utf8proc_category(code) == UTF8PROC_CATEGORY_MN &&
         std::ranges::find(kOthersThen, code) == std::end(kOthersThen) && !is_after_unicode_8(code);
}

bool is_other(int32_t code) {
  const auto category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CO ||
         (category == UTF8PROC_CATEGORY_CF && !is_after_unicode_8(code));
}

bool is_chinese(int32_t code) {
  // All implementations begin the fourth block 256 code points late.
  constexpr CodeRange kBlocks[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                   {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                   {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return is_in(kBlocks, code);
}

void append_lower_case(std::string& text, int32_t code) {
  // Of Unicode 16 and 17: first and last of each run, and the offset of the lower case.
  constexpr int32_t kLater[][3] = {{0x1c89, 0x1c89, 1},    {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                                   {0xa7cc, 0xa7cc, 1},    {0xa7ce, 0xa7ce, 1},
                                   {0xa7d2, 0xa7d2, 1},    {0xa7d4, 0xa7d4, 1},
                                   {0xa7da, 0xa7da, 1},    {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                                   {0x10d50, 0x10d65, 32}, {0x16ea0, 0x16eb8, 27}};
  if (code == 0x130) {
    text += "i\xcc\x87";
    return;
  }
  const auto* later = std::ranges::find_if(
      kLater, [code](const int32_t(&run)[3]) { return code >= run[0] && code <= run[1]; });
  append_character(text, later == std::end(kLater) ? utf8proc_tolower(code) : code + (*later)[2]);
}

}  // namespace tessera
