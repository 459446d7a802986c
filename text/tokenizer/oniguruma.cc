// Translates Oniguruma's expressions to PCRE2's syntax.
#include <algorithm>
#include <utility>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/pattern.h"

namespace tessera {
namespace {

// Members of classes. Unicode's White_Space: PCRE2's \s also has U+180E, removed by Unicode 6.3.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoWhiteSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Below U+0100 it includes non-digit numbers.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
// As of Unicode 16.
constexpr std::string_view kAlphabetic =
    R"(\p{Alphabetic}\x{363}-\x{36f}\x{c04}\x{f82}\x{f83}\x{1dd3}-\x{1de6}\x{11080}\x{11081})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";
constexpr int kMostDepth = 200;  // of groups and classes

struct LongName {
  std::string_view name, category;
};
constexpr LongName kLongNames[] = {
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Surrogate", "Cs"},
    {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
    {"Alpha", "Alphabetic"},
    {"Space", "White_Space"},
    {"Punct", "P"},
    {"Digit", "Nd"},
    {"Upper", "Uppercase"},
    {"Lower", "Lowercase"},
};
// Scripts named by tokenizer patterns. PCRE2's \p{Han} would include characters shared with other scripts.
constexpr std::string_view kScripts[] = {
    "Arabic",   "Armenian", "Bengali",  "Bopomofo", "Cyrillic",  "Devanagari", "Ethiopic", "Georgian",
    "Greek",    "Gujarati", "Gurmukhi", "Han",      "Hangul",    "Hebrew",     "Hiragana", "Kannada",
    "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam", "Mongolian",  "Myanmar",  "Oriya",
    "Sinhala",  "Tamil",    "Telugu",   "Thaana",   "Thai",      "Tibetan",
};

class Translator {
 public:
  explicit Translator(std::string_view from) : from_(from) {}

  Result<std::string> translate() {
    std::string to;
    int depth = 0;
    bool repeated = false;  // the previous item ends with a braced quantifier
    while (at_ < from_.size()) {
      const char c = from_[at_];
      const bool after_braces = std::exchange(repeated, false);
      if (c == '\\') {
        TSR_RETURN_IF_ERROR(escape(to, false).status());
      } else if (c == '[') {
        TSR_ASSIGN_OR_RETURN(const std::string set, character_class(0));
        to += set;
      } else if (c == '(') {
        if (++depth > kMostDepth) return refused("nests deeper than 200 groups");
        group(to);
      } else if (c == '{') {
        const size_t end = from_.find('}', at_);
        const std::string_view braces = from_.substr(at_, end == std::string_view::npos ? 1 : end + 1 - at_);
        repeated = braces.size() > 2 && braces.find_first_not_of("0123456789,{}") == std::string_view::npos;
        to += repeated && braces[1] == ',' ? "{0" + std::string(braces.substr(1)) : std::string(braces);
        at_ += braces.size();
      } else {
        if (c == '+' && after_braces) return refused("repeats '{n,m}', which PCRE2 would make possessive");
        if (c == ')') --depth;
        to += c;
        ++at_;
      }
    }
    return to;
  }

 private:
  Status refused(std::string_view why) const {
    return Status(StatusCode::kUnsupported, format("the pattern {} {} (at byte {})", quote(from_), why, at_));
  }

  // "(", "(?:" and so on; options like (?m:, as Ruby's m is PCRE2's s.
  void group(std::string& to) {
    to += from_[at_++];
    if (at_ >= from_.size() || from_[at_] != '?') return;
    const size_t end = from_.find_first_not_of("imx-", at_ + 1);
    if (end == std::string_view::npos || (from_[end] != ':' && from_[end] != ')')) return;
    for (; at_ < end; ++at_) to += from_[at_] == 'm' ? 's' : from_[at_];
  }

  // Appends the escape at at_; within a class only its members, or false if they are no list ("\W").
  Result<bool> escape(std::string& to, bool in_class) {
    if (at_ + 1 >= from_.size()) return refused("ends with a backslash");
    const char c = from_[at_ + 1];
    const auto set = [&](std::string_view members) {
      to += in_class ? std::string(members) : format("[{}]", members);
    };
    size_t taken = 2;
    bool listed = true;
    switch (c) {
      case 's': set(kWhiteSpace); break;
      case 'S': set(kNoWhiteSpace); break;
      case 'w': set(kWord); break;
      case 'W':
        to += format("[^{}]", kWord);
        listed = false;
        break;
      case 'd': to += R"(\p{Nd})"; break;
      case 'D': to += R"(\P{Nd})"; break;
      case 'h': set(kHexDigit); break;
      case 'H':
        to += format("[^{}]", kHexDigit);
        listed = false;
        break;
      case 'v': to += R"(\x0b)"; break;
      case 'b':
        to += in_class ? R"(\x08)"
                       : format("(?:(?<=[{}])(?![{}])|(?<![{}])(?=[{}]))", kWord, kWord, kWord, kWord);
        break;
      case 'B':
        if (in_class) {
          to += 'B';
        } else {
          to += format("(?:(?<=[{}])(?=[{}])|(?<![{}])(?![{}]))", kWord, kWord, kWord, kWord);
        }
        break;
      case 'u':
        if (from_.size() - at_ < 6) return refused("has '\\u' without four digits");
        to += "\\x{" + std::string(from_.substr(at_ + 2, 4)) + "}";
        taken = 6;
        break;
      case 'p':
      case 'P': {
        const size_t end = from_.find('}', at_);
        if (at_ + 2 >= from_.size() || from_[at_ + 2] != '{' || end == std::string_view::npos) {
          to += {'\\', c};
          break;
        }
        std::string_view name = from_.substr(at_ + 3, end - at_ - 3);
        const bool negated = name.starts_with('^');
        if (negated) name.remove_prefix(1);
        const auto known = std::ranges::find(kLongNames, name, &LongName::name);
        if (known != std::end(kLongNames)) name = known->category;
        const bool script = std::ranges::find(kScripts, name) != std::end(kScripts);
        to += std::string("\\") + ((c == 'P') != negated ? 'P' : 'p') + (script ? "{sc:" : "{") +
              std::string(name) + '}';
        taken = end + 1 - at_;
        break;
      }
      default: to += {'\\', c};
    }
    at_ += taken;
    return listed;
  }

  // A class as one item. Nested unions and intersections become assertions before any character.
  Result<std::string> character_class(int depth) {
    if (depth > kMostDepth) return refused("nests deeper than 200 classes");
    const size_t begin = at_++;
    const bool negated = at_ < from_.size() && from_[at_] == '^';
    if (negated) ++at_;
    std::vector<std::string> required;  // conditions of an intersection's other operands
    std::string members;                // of a plain class
    std::vector<std::string> within;    // nested classes and negated escapes of this union
    bool first = true;
    const auto union_of = [&]() -> std::string {
      if (within.empty()) return members.empty() ? "(?!)" : "[" + members + "]";
      std::string either = members.empty() ? std::string() : "[" + members + "]";
      for (const std::string& set : within) either += (either.empty() ? "" : "|") + set;
      return "(?:" + either + ")";
    };
    for (;; first = false) {
      if (at_ >= from_.size()) {
        at_ = begin;
        return refused("has a class without its end");
      }
      const char c = from_[at_];
      if (c == ']' && !first) break;
      if (c == '[' && from_.substr(at_).starts_with("[:")) {
        const size_t end = from_.find(":]", at_);
        if (end != std::string_view::npos) {
          const std::string_view name = from_.substr(at_, end + 2 - at_);
          members += name == "[:space:]"   ? std::string(kWhiteSpace)
                     : name == "[:word:]"  ? std::string(kWord)
                     : name == "[:alpha:]" ? std::string(kAlphabetic)
                                           : std::string(name);
          at_ = end + 2;
          continue;
        }
      }
      if (c == '[') {
        TSR_ASSIGN_OR_RETURN(std::string nested, character_class(depth + 1));
        within.push_back(std::move(nested));
      } else if (c == '\\') {
        std::string text;
        TSR_ASSIGN_OR_RETURN(const bool listed, escape(text, true));
        if (listed)
          members += text;
        else
          within.push_back(std::move(text));
      } else if (from_.substr(at_).starts_with("&&")) {
        required.push_back(union_of());
        members.clear();
        within.clear();
        at_ += 2;
      } else {
        if (c == ']') members += '\\';  // the first in the class: literal
        if (c == '^' && members.empty()) members += '\\';
        members += c;
        ++at_;
      }
    }
    ++at_;
    if (required.empty() && within.empty() && !members.empty()) return (negated ? "[^" : "[") + members + "]";
    std::string accepted;
    for (const std::string& side : required) accepted += "(?=" + side + ")";
    accepted += union_of();
    if (!negated) return "(?:" + accepted + ")";
    return "(?:(?!" + accepted + R"()[\x{0}-\x{10ffff}]))";
  }

  const std::string_view from_;
  size_t at_ = 0;
};

}  // namespace

Result<std::string> pcre_syntax(std::string_view oniguruma) { return Translator(oniguruma).translate(); }

}  // namespace tessera
