#include "serialize/grammar/regex.h"

#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "serialize/grammar/regex_class.h"
#include "serialize/grammar/source_text.h"

namespace tessera::grammar {
namespace {

constexpr int kMostGroups = 50;  // within each other

class RegexReader {
 public:
  RegexReader(Expressions& out, SourceText& text, RegexMatch match, TextForm form)
      : out_(out), text_(text), match_(match), form_(form) {}

  Result<ExpressionId> read() {
    TSR_ASSIGN_OR_RETURN(const ExpressionId whole, read_choice(0));
    if (!text_.is_at_end()) return text_.wanted("'(' before this ')', or '\\)'");
    return whole;
  }

 private:
  Result<ExpressionId> read_choice(int depth) {
    std::vector<ExpressionId> branches;
    do {
      TSR_ASSIGN_OR_RETURN(const ExpressionId branch, read_sequence(depth));
      branches.push_back(branch);
    } while (text_.take("|"));
    return out_.choice(std::move(branches));
  }

  ExpressionId anything() {
    return out_.repeat(character_of(out_, CharacterSet({{0, kLastCharacter}}), form_), 0, kUnbounded);
  }

  Result<ExpressionId> read_sequence(int depth) {
    std::vector<ExpressionId> parts;
    std::string literal;
    const auto flush = [&] {
      if (!literal.empty()) parts.push_back(out_.literal(written(literal, form_)));
      literal.clear();
    };
    bool is_anchored_at_start = false, is_anchored_at_end = false;
    if (depth == 0 && text_.take("^")) is_anchored_at_start = true;
    while (!text_.is_at_end() && !text_.starts_with("|") && !text_.starts_with(")")) {
      const size_t begin = text_.at();
      if (text_.take("$")) {
        if (depth > 0 || !(text_.is_at_end() || text_.starts_with("|")))
          return text_.unsupported("anchors within an expression ('$' before its end) are", begin);
        is_anchored_at_end = true;
        break;
      }
      if (text_.starts_with("^"))
        return text_.unsupported("anchors within an expression ('^' after its beginning) are", begin);
      TSR_ASSIGN_OR_RETURN(const ExpressionId atom, read_atom(depth, literal));
      const bool is_literal = atom == kUnbounded;  // one character at the end of `literal`
      if (!is_quantifier_next()) {
        if (!is_literal) {
          flush();
          parts.push_back(atom);
        }
        continue;
      }
      ExpressionId body = atom;
      if (is_literal) {
        size_t cut = literal.size() - 1;
        while ((static_cast<uint8_t>(literal[cut]) & 0xC0) == 0x80) --cut;
        body = out_.literal(written(std::string_view(literal).substr(cut), form_));
        literal.resize(cut);
      }
      flush();
      TSR_ASSIGN_OR_RETURN(const ExpressionId repeated, read_quantifier(body));
      parts.push_back(repeated);
    }
    flush();
    if (depth == 0 && match_ == RegexMatch::kSearch) {
      if (!is_anchored_at_start) parts.insert(parts.begin(), anything());
      if (!is_anchored_at_end) parts.push_back(anything());
    }
    return out_.sequence(std::move(parts));
  }

  // A single character is appended to `literal`, and kUnbounded given.
  Result<ExpressionId> read_atom(int depth, std::string& literal) {
    const size_t begin = text_.at();
    if (text_.take("(")) return read_group(depth, begin);
    if (text_.take("[")) {
      TSR_ASSIGN_OR_RETURN(const CharacterSet set, read_class(text_, begin, form_));
      return character_of(out_, set, form_);
    }
    if (text_.take(".")) {
      const std::vector<CharacterRange> ends =
          form_ == TextForm::kPlain
              ? std::vector<CharacterRange>{{'\n', '\n'}}
              : std::vector<CharacterRange>{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
      return character_of(out_, CharacterSet(ends).complement(), form_);
    }
    uint32_t character = text_.peek();
    if (character == '*' || character == '+' || character == '?' || character == '{')
      return text_.wanted(std::string("something to repeat before it, or '\\") +
                          static_cast<char>(character) + "'");
    if (text_.take("\\")) {
      if (is_class_letter(text_.peek()))
        return character_of(out_, class_of_letter(static_cast<char>(text_.take()), false, form_), form_);
      TSR_ASSIGN_OR_RETURN(character, read_escaped_character(text_, begin, false));
    } else {
      text_.take();
    }
    append_utf8(literal, character);
    return ExpressionId{kUnbounded};
  }

  Result<ExpressionId> read_group(int depth, size_t begin) {
    if (depth >= kMostGroups)
      return text_.unsupported(format("more than {} groups within each other are", kMostGroups), begin);
    if (text_.take("?")) {
      if (text_.starts_with("=") || text_.starts_with("!")) return text_.unsupported("look-ahead is", begin);
      if (text_.starts_with("<=") || text_.starts_with("<!"))
        return text_.unsupported("look-behind is", begin);
      if (text_.take("<") || text_.take("P<")) {
        while (!text_.is_at_end() && !text_.starts_with(">") && !text_.starts_with(")")) text_.take();
        if (!text_.take(">")) return text_.wanted("the '>' of the group's name");
      } else if (!text_.take(":")) {
        return text_.unsupported("groups other than (...), (?:...) and (?<name>...) are", begin);
      }
    }
    TSR_ASSIGN_OR_RETURN(const ExpressionId choice, read_choice(depth + 1));
    if (!text_.take(")")) return text_.wanted("the ')' of the group that begins here", begin);
    return choice;
  }

  bool is_quantifier_next() const {
    return text_.starts_with("*") || text_.starts_with("+") || text_.starts_with("?") ||
           text_.starts_with("{");
  }

  Result<ExpressionId> read_quantifier(ExpressionId body) {
    const size_t begin = text_.at();
    uint32_t minimum = 0, maximum = kUnbounded;
    if (text_.take("+")) {
      minimum = 1;
    } else if (text_.take("?")) {
      maximum = 1;
    } else if (text_.take("{")) {
      if (text_.peek() < '0' || text_.peek() > '9')
        return text_.wanted("a number of repetitions, or '\\{' before");
      TSR_ASSIGN_OR_RETURN(minimum, text_.take_number(kMostRepetitions));
      maximum = minimum;
      if (text_.take(",")) {
        maximum = kUnbounded;
        if (text_.peek() >= '0' && text_.peek() <= '9') {
          TSR_ASSIGN_OR_RETURN(maximum, text_.take_number(kMostRepetitions));
        }
      }
      if (!text_.take("}")) return text_.wanted("'}' or ','");
      if (maximum < minimum) return text_.wanted("bounds in ascending order", begin);
    } else {
      text_.take("*");
    }
    if (text_.starts_with("+")) return text_.unsupported("possessive repetition is", begin);
    text_.take("?");  // as few as possible: the same texts match
    if (is_quantifier_next()) return text_.wanted("no second repetition, or a group around the first");
    return out_.repeat(body, minimum, maximum);
  }

  static void append_utf8(std::string& text, uint32_t character) {
    const Utf8Range bytes = utf8_ranges(CharacterSet({{character, character}})).front();
    for (size_t i = 0; i < bytes.size; ++i) text += static_cast<char>(bytes.first[i]);
  }

  Expressions& out_;
  SourceText& text_;
  const RegexMatch match_;
  const TextForm form_;
};

}  // namespace

Result<ExpressionId> read_regex(Expressions& out, std::string_view pattern, RegexMatch match, TextForm form,
                                std::string_view what) {
  TSR_ASSIGN_OR_RETURN(SourceText text,
                       SourceText::create(pattern, what, SourceText::Place::kByte, kMostPatternBytes));
  return RegexReader(out, text, match, form).read();
}

}  // namespace tessera::grammar
