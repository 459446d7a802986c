#include "text/grammar/regex_tree.h"

#include <string>
#include <utility>

#include "graph/base/text.h"
#include "text/grammar/regex_class.h"

namespace tessera::grammar {
namespace {

constexpr int kMostGroups = 50;  // nesting

class RegexReader {
 public:
  RegexReader(SourceText& text, TextForm form) : text_(text), form_(form) {}

  Result<RegexTree> read() {
    TSR_RETURN_IF_ERROR(read_choice(0).status());
    if (!text_.is_at_end()) return text_.wanted("'(' before this ')', or '\\)'");
    return std::move(tree_);
  }

 private:
  using Kind = RegexNode::Kind;

  uint32_t add(RegexNode node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }
  uint32_t add(Kind kind, size_t begin, std::vector<uint32_t> parts = {}) {
    RegexNode node;
    node.kind = kind;
    node.begin = begin;
    node.parts = std::move(parts);
    return add(std::move(node));
  }
  uint32_t characters(CharacterSet set, size_t begin) {
    RegexNode node;
    node.kind = Kind::kCharacters;
    node.set = std::move(set);
    node.begin = begin;
    return add(std::move(node));
  }

  Result<uint32_t> read_choice(int depth) {
    const size_t begin = text_.at();
    std::vector<uint32_t> branches;
    do {
      TSR_ASSIGN_OR_RETURN(const uint32_t branch, read_sequence(depth));
      branches.push_back(branch);
    } while (text_.take("|"));
    return add(Kind::kChoice, begin, std::move(branches));
  }

  Result<uint32_t> read_sequence(int depth) {
    const size_t from = text_.at();
    std::vector<uint32_t> parts;
    while (!text_.is_at_end() && !text_.starts_with("|") && !text_.starts_with(")")) {
      const size_t begin = text_.at();
      if (text_.starts_with("^") || text_.starts_with("$")) {
        parts.push_back(add(text_.take() == '^' ? Kind::kStart : Kind::kEnd, begin));
        if (is_quantifier_next()) return text_.unsupported("repetitions of anchors are", begin);
        continue;
      }
      TSR_ASSIGN_OR_RETURN(const uint32_t atom, read_atom(depth));
      if (!is_quantifier_next()) {
        parts.push_back(atom);
        continue;
      }
      TSR_ASSIGN_OR_RETURN(const uint32_t repeated, read_quantifier(atom));
      parts.push_back(repeated);
    }
    return add(Kind::kSequence, from, std::move(parts));
  }

  Result<uint32_t> read_atom(int depth) {
    const size_t begin = text_.at();
    if (text_.take("(")) return read_group(depth, begin);
    if (text_.take("[")) {
      TSR_ASSIGN_OR_RETURN(CharacterSet set, read_class(text_, begin, form_));
      return characters(std::move(set), begin);
    }
    if (text_.take(".")) {
      const std::vector<CharacterRange> ends =
          form_ == TextForm::kPlain
              ? std::vector<CharacterRange>{{'\n', '\n'}}
              : std::vector<CharacterRange>{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
      return characters(CharacterSet(ends).complement(), begin);
    }
    uint32_t character = text_.peek();
    if (character == '*' || character == '+' || character == '?' || character == '{')
      return text_.wanted(std::string("something to repeat before it, or '\\") +
                          static_cast<char>(character) + "'");
    if (text_.take("\\")) {
      if (is_class_letter(text_.peek()))
        return characters(class_of_letter(static_cast<char>(text_.take()), false, form_), begin);
      TSR_ASSIGN_OR_RETURN(character, read_escaped_character(text_, begin, false));
    } else {
      text_.take();
    }
    return characters(CharacterSet({{character, character}}), begin);
  }

  Result<uint32_t> read_group(int depth, size_t begin) {
    if (depth >= kMostGroups)
      return text_.unsupported(format("more than {} groups within each other are", kMostGroups), begin);
    bool is_look = false, is_negative = false;
    if (text_.take("?")) {
      if (text_.starts_with("<=") || text_.starts_with("<!"))
        return text_.unsupported("look-behind is", begin);
      if (text_.take("=") || text_.starts_with("!")) {
        is_look = true;
        is_negative = text_.take("!");
      } else if (text_.take("<") || text_.take("P<")) {
        while (!text_.is_at_end() && !text_.starts_with(">") && !text_.starts_with(")")) text_.take();
        if (!text_.take(">")) return text_.wanted("the '>' of the group's name");
      } else if (!text_.take(":")) {
        return text_.unsupported("groups other than (...), (?:...) and (?<name>...) are", begin);
      }
    }
    TSR_ASSIGN_OR_RETURN(const uint32_t choice, read_choice(depth + 1));
    if (!text_.take(")")) return text_.wanted("the ')' of the group that begins here", begin);
    if (!is_look) return choice;
    const uint32_t look = add(Kind::kLookAhead, begin, {choice});
    tree_.nodes[look].is_negative = is_negative;
    if (is_quantifier_next()) return text_.unsupported("repetitions of look-ahead are", begin);
    return look;
  }

  bool is_quantifier_next() const {
    return text_.starts_with("*") || text_.starts_with("+") || text_.starts_with("?") ||
           text_.starts_with("{");
  }

  Result<uint32_t> read_quantifier(uint32_t body) {
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
    text_.take("?");  // lazy: the same texts match
    if (is_quantifier_next()) return text_.wanted("no second repetition, or a group around the first");
    const uint32_t repeated = add(Kind::kRepeat, begin, {body});
    tree_.nodes[repeated].minimum = minimum;
    tree_.nodes[repeated].maximum = maximum;
    return repeated;
  }

  SourceText& text_;
  const TextForm form_;
  RegexTree tree_;
};

}  // namespace

Result<RegexTree> read_regex_tree(SourceText& text, TextForm form) { return RegexReader(text, form).read(); }

}  // namespace tessera::grammar
