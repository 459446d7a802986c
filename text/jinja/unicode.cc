#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace tessera::jinja {
namespace {

utf8proc_category_t category(uint32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

// SpecialCase: characters with several upper-case characters, or a distinct title case; the most frequent of Unicode's special cases.
struct SpecialCase {
  uint32_t code;
  std::string_view upper, title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0xdf, "SS", "Ss"},   {0x149, "ʼN", "ʼN"},  {0x1f0, "J̌", "J̌"},      {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"}, {0xfb02, "FL", "Fl"}, {0xfb03, "FFI", "Ffi"}, {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"}, {0xfb06, "ST", "St"},
};
constexpr uint32_t kCapitalSigma = 0x3a3, kFinalSigma = 0x3c2, kDottedI = 0x130;

// A final sigma has its own lower-case letter: after a cased letter, before none.
bool ends_word(std::string_view bytes, size_t begin, size_t end) {
  bool before = false;
  for (size_t at = begin; at > 0 && !before;) {
    do --at;
    while ((static_cast<unsigned char>(bytes[at]) & 0xc0) == 0x80);
    size_t size = 0;
    const uint32_t code = code_point_at(bytes, at, size);
    if (!is_cased(code) && code != '\'' && category(code) != UTF8PROC_CATEGORY_MN) return false;
    before = is_cased(code);
  }
  if (!before) return false;
  for (size_t at = end, size = 0; at < bytes.size(); at += size) {
    const uint32_t code = code_point_at(bytes, at, size);
    if (is_cased(code)) return false;
    if (code != '\'' && category(code) != UTF8PROC_CATEGORY_MN) return true;
  }
  return true;
}

}  // namespace

bool is_upper(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_LU; }
bool is_lower(uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || code == 0xaa || code == 0xba;
}
bool is_cased(uint32_t code) {
  return is_upper(code) || is_lower(code) || category(code) == UTF8PROC_CATEGORY_LT;
}
bool is_alphabetic(uint32_t code) {
  const auto found = category(code);
  return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }
bool is_digit(uint32_t code) {
  return is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089);
}
bool is_numeric(uint32_t code) {
  const auto found = category(code);
  return found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO;
}
bool is_printable(uint32_t code) {
  if (code == ' ') return true;
  const auto found = category(code);
  return found != UTF8PROC_CATEGORY_CN && found < UTF8PROC_CATEGORY_ZS;
}
bool is_word(uint32_t code) { return code == '_' || is_alphabetic(code) || is_numeric(code); }
bool is_name_begin(uint32_t code) {
  return code == '_' || is_alphabetic(code) || category(code) == UTF8PROC_CATEGORY_NL;
}
bool is_name_rest(uint32_t code) {
  const auto found = category(code);
  return is_name_begin(code) || found == UTF8PROC_CATEGORY_ND || found == UTF8PROC_CATEGORY_MN ||
         found == UTF8PROC_CATEGORY_MC || found == UTF8PROC_CATEGORY_PC;
}

void append_case(std::string& out, uint32_t code, Case to) {
  const auto signed_code = static_cast<utf8proc_int32_t>(code);
  if (to == Case::kLower) {
    if (code == kDottedI)
      out += "i̇";
    else
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(signed_code)));
    return;
  }
  const auto* special = std::ranges::find(kSpecialCases, code, &SpecialCase::code);
  if (special != std::end(kSpecialCases))
    out += to == Case::kUpper ? special->upper : special->title;
  else
    append_utf8(out, static_cast<uint32_t>(to == Case::kUpper ? utf8proc_toupper(signed_code)
                                                              : utf8proc_totitle(signed_code)));
}

Result<Text> change_case(Budget& budget, const Text& text, CaseStyle style) {
  constexpr size_t kMostBuffered = 4096;
  TSR_RETURN_IF_ERROR(budget.spend_characters(2 * text.size()));
  TextBuilder builder(budget);
  const std::string_view bytes = text.bytes();
  size_t run = 0;
  std::string changed;  // part of one run
  bool after_cased = false;
  for (size_t at = 0, size = 0; at < bytes.size(); at += size) {
    const uint32_t code = code_point_at(bytes, at, size);
    if (text.runs()[run].end <= at || changed.size() >= kMostBuffered) {
      TSR_RETURN_IF_ERROR(builder.add(changed, text.runs()[run].origin));
      changed.clear();
    }
    while (text.runs()[run].end <= at) ++run;
    Case to = Case::kLower;
    if (style == CaseStyle::kUpper) to = Case::kUpper;
    if (style == CaseStyle::kCapitalize && at == 0) to = Case::kTitle;
    if (style == CaseStyle::kTitle && !after_cased) to = Case::kTitle;
    if (style == CaseStyle::kSwap && is_lower(code)) to = Case::kUpper;
    if (style == CaseStyle::kFold && code == 0xdf)
      changed += "ss";
    else if (to == Case::kLower && code == kCapitalSigma && style != CaseStyle::kFold &&
             ends_word(bytes, at, at + size))
      append_utf8(changed, kFinalSigma);
    else if (style == CaseStyle::kFold && code == kFinalSigma)
      append_utf8(changed, 0x3c3);
    else
      append_case(changed, code, to);
    after_cased = style == CaseStyle::kTitle && is_cased(code);
  }
  if (!changed.empty()) TSR_RETURN_IF_ERROR(builder.add(changed, text.runs()[run].origin));
  return builder.finish();
}

}  // namespace tessera::jinja
