#include "text/grammar/gbnf.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/source_text.h"

namespace tessera::grammar {
namespace {

constexpr size_t kMostGrammarBytes = size_t{1} << 20;
constexpr int kMostParentheses = 50;  // nesting

bool is_name_character(uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfReader {
 public:
  GbnfReader(Expressions& out, SourceText& text) : out_(out), text_(text) {}

  Result<RuleId> read() {
    skip_space(true);
    while (!text_.is_at_end()) {
      TSR_RETURN_IF_ERROR(read_rule());
      TSR_RETURN_IF_ERROR(out_.status());
    }
    for (const auto& [name, rule] : rules_)
      if (!rule.is_defined)
        return Status(StatusCode::kInvalidArgument,
                      format("{}: rule '{}' is not defined", text_.place(rule.first_use), quote(name, 64)));
    const auto root = rules_.find("root");
    if (root == rules_.end())
      return Status(StatusCode::kInvalidArgument,
                    "GBNF grammar: found no rule 'root', wanted one that matches the text");
    return root->second.id;
  }

 private:
  struct NamedRule {
    RuleId id = 0;
    bool is_defined = false;
    size_t first_use = 0;
  };

  // Skips blanks and comments; also line ends if `past_lines`.
  void skip_space(bool past_lines) {
    while (!text_.is_at_end()) {
      if (text_.starts_with("#"))
        while (!text_.is_at_end() && text_.peek() != '\n' && text_.peek() != '\r') text_.take();
      else if (text_.peek() == ' ' || text_.peek() == '\t' ||
               (past_lines && (text_.peek() == '\n' || text_.peek() == '\r')))
        text_.take();
      else
        return;
    }
  }

  bool is_at_line_begin() const {
    const std::string_view before = text_.between(0, text_.at());
    const size_t last = before.find_last_not_of(" \t");
    return last == std::string_view::npos || before[last] == '\n' || before[last] == '\r';
  }

  Result<std::string> read_name() {
    const size_t begin = text_.at();
    while (is_name_character(text_.peek())) text_.take();
    if (text_.at() == begin) return text_.wanted("the name of a rule");
    return std::string(text_.between(begin, text_.at()));
  }

  NamedRule& rule_named(const std::string& name, size_t at) {
    const auto [found, is_new] = rules_.try_emplace(name);
    if (is_new) found->second = {out_.declare_rule(name), false, at};
    return found->second;
  }

  Status read_rule() {
    const size_t begin = text_.at();
    TSR_ASSIGN_OR_RETURN(const std::string name, read_name());
    skip_space(false);
    if (!text_.take("::=")) return text_.wanted("'::=' after the name of a rule");
    skip_space(true);
    NamedRule& rule = rule_named(name, begin);
    if (rule.is_defined)
      return text_.wanted(format("one definition of rule '{}', this is another", quote(name, 64)), begin);
    rule.is_defined = true;
    const RuleId id = rule.id;
    TSR_ASSIGN_OR_RETURN(const ExpressionId body, read_choice(0));
    // An own sequence, since two rules never share an expression.
    out_.define_rule(id, out_.sequence({out_.empty(), body}));
    if (!text_.is_at_end() && !text_.starts_with("\n") && !text_.starts_with("\r") && !is_at_line_begin())
      return text_.wanted("the end of the line, or a part of the rule");
    skip_space(true);
    return {};
  }

  Result<ExpressionId> read_choice(int depth) {
    std::vector<ExpressionId> branches;
    while (true) {
      TSR_ASSIGN_OR_RETURN(const ExpressionId branch, read_sequence(depth));
      branches.push_back(branch);
      const size_t end = text_.at();
      skip_space(true);  // a line may begin with '|'
      if (!text_.take("|")) {
        text_.move_to(end);
        break;
      }
      skip_space(true);
    }
    return out_.choice(std::move(branches));
  }

  Result<ExpressionId> read_sequence(int depth) {
    std::vector<ExpressionId> parts;
    while (true) {
      skip_space(depth > 0);
      TSR_ASSIGN_OR_RETURN(const std::optional<ExpressionId> part, read_part(depth));
      if (!part) break;
      TSR_ASSIGN_OR_RETURN(const ExpressionId repeated, read_repetitions(*part, depth));
      parts.push_back(repeated);
      TSR_RETURN_IF_ERROR(out_.status());
    }
    return out_.sequence(std::move(parts));
  }

  // nullopt if no part begins here.
  Result<std::optional<ExpressionId>> read_part(int depth) {
    const size_t begin = text_.at();
    if (text_.take("\"")) {
      std::string literal;
      while (!text_.take("\"")) {
        if (text_.is_at_end()) return text_.wanted("the '\"' of the text that begins here", begin);
        TSR_ASSIGN_OR_RETURN(const uint32_t character, read_character());
        const Utf8Range bytes = utf8_ranges(CharacterSet({{character, character}})).front();
        for (size_t i = 0; i < bytes.size; ++i) literal += static_cast<char>(bytes.first[i]);
      }
      return std::optional(out_.literal(literal));
    }
    if (text_.take("[")) {
      TSR_ASSIGN_OR_RETURN(const CharacterSet set, read_class(begin));
      return std::optional(out_.characters(set));
    }
    if (text_.take(".")) return std::optional(out_.characters(CharacterSet({{0, kLastCharacter}})));
    if (text_.take("(")) {
      if (depth >= kMostParentheses)
        return text_.unsupported(format("more than {} parentheses within each other are", kMostParentheses),
                                 begin);
      TSR_ASSIGN_OR_RETURN(const ExpressionId choice, read_choice(depth + 1));
      skip_space(true);
      if (!text_.take(")")) return text_.wanted("the ')' of the group that begins here", begin);
      return std::optional(choice);
    }
    if (text_.starts_with("<") || text_.starts_with("!"))
      return text_.unsupported("tokens in grammars are", begin);
    if (!is_name_character(text_.peek())) return std::optional<ExpressionId>();
    TSR_ASSIGN_OR_RETURN(const std::string name, read_name());
    const size_t end = text_.at();
    skip_space(false);
    if (text_.starts_with("::=")) {  // the next rule
      if (depth > 0) return text_.wanted("')' before the next rule", begin);
      text_.move_to(begin);
      return std::optional<ExpressionId>();
    }
    text_.move_to(end);
    return std::optional(out_.call(rule_named(name, begin).id));
  }

  Result<ExpressionId> read_repetitions(ExpressionId part, int depth) {
    while (true) {
      const size_t end = text_.at();
      skip_space(depth > 0);
      if (text_.take("*")) {
        part = out_.repeat(part, 0, kUnbounded);
      } else if (text_.take("+")) {
        part = out_.repeat(part, 1, kUnbounded);
      } else if (text_.take("?")) {
        part = out_.optional(part);
      } else if (text_.take("{")) {
        TSR_ASSIGN_OR_RETURN(part, read_bounds(part));
      } else {
        text_.move_to(end);
        return part;
      }
    }
  }

  Result<ExpressionId> read_bounds(ExpressionId part) {
    const size_t begin = text_.at();
    const auto is_digit_next = [&] { return text_.peek() >= '0' && text_.peek() <= '9'; };
    skip_space(false);
    if (!is_digit_next() && !text_.starts_with(",")) return text_.wanted("a number of repetitions");
    uint32_t minimum = 0, maximum = kUnbounded;
    if (is_digit_next()) {
      TSR_ASSIGN_OR_RETURN(minimum, text_.take_number(kMostRepetitions));
      maximum = minimum;
    }
    skip_space(false);
    if (text_.take(",")) {
      maximum = kUnbounded;
      skip_space(false);
      if (is_digit_next()) {
        TSR_ASSIGN_OR_RETURN(maximum, text_.take_number(kMostRepetitions));
      }
      skip_space(false);
    }
    if (!text_.take("}")) return text_.wanted("'}' or ','");
    if (maximum < minimum) return text_.wanted("bounds in ascending order", begin);
    return out_.repeat(part, minimum, maximum);
  }

  // Reads a character of a text or class, possibly escaped.
  Result<uint32_t> read_character() {
    const size_t begin = text_.at();
    if (text_.starts_with("\n") || text_.starts_with("\r"))
      return text_.wanted("no end of line here, or '\\n'");
    if (!text_.take("\\")) return text_.take();
    uint32_t character = 0;
    if (text_.take("x")) {
      TSR_ASSIGN_OR_RETURN(character, text_.take_hex(2));
    } else if (text_.take("u")) {
      TSR_ASSIGN_OR_RETURN(character, text_.take_hex(4));
    } else if (text_.take("U")) {
      TSR_ASSIGN_OR_RETURN(character, text_.take_hex(8));
    } else {
      constexpr std::string_view kLetters = "trn\\\"[]-^'/", kMeant = "\t\r\n\\\"[]-^'/";
      const uint32_t letter = text_.peek();
      const size_t at = letter < 0x80 ? kLetters.find(static_cast<char>(letter)) : std::string_view::npos;
      if (at == std::string_view::npos)
        return text_.wanted("one of \\t \\r \\n \\\\ \\\" \\[ \\] \\x \\u \\U", begin);
      text_.take();
      return static_cast<uint32_t>(kMeant[at]);
    }
    if (character > kLastCharacter || (character >= 0xD800 && character <= 0xDFFF))
      return text_.wanted("the number of a character", begin);
    return character;
  }

  Result<CharacterSet> read_class(size_t begin) {
    const bool is_negated = text_.take("^");
    std::vector<CharacterRange> ranges;
    while (!text_.take("]")) {
      if (text_.is_at_end()) return text_.wanted("the ']' of the class that begins here", begin);
      const size_t at = text_.at();
      TSR_ASSIGN_OR_RETURN(const uint32_t first, read_character());
      uint32_t last = first;
      if (text_.starts_with("-") && !text_.starts_with("-]")) {
        text_.take();
        if (text_.is_at_end()) return text_.wanted("the ']' of the class that begins here", begin);
        TSR_ASSIGN_OR_RETURN(last, read_character());
      }
      if (last < first) return text_.wanted("a range in ascending order", at);
      ranges.push_back({first, last});
    }
    CharacterSet set(std::move(ranges));
    return is_negated ? set.complement() : set;
  }

  Expressions& out_;
  SourceText& text_;
  std::map<std::string, NamedRule> rules_;
};

}  // namespace

Result<RuleId> read_gbnf(Expressions& out, std::string_view grammar) {
  TSR_ASSIGN_OR_RETURN(SourceText text, SourceText::create(grammar, "GBNF grammar", SourceText::Place::kLine,
                                                           kMostGrammarBytes));
  return GbnfReader(out, text).read();
}

}  // namespace tessera::grammar
