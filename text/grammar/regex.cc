#include "text/grammar/regex.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "text/grammar/regex_tree.h"
#include "text/grammar/source_text.h"

namespace tessera::grammar {
namespace {

using Kind = RegexNode::Kind;

bool is_single(const RegexNode& node) {
  return node.kind == Kind::kCharacters && node.set.ranges().size() == 1 &&
         node.set.ranges()[0].first == node.set.ranges()[0].last;
}

void append_utf8(std::string& text, uint32_t character) {
  const Utf8Range bytes = utf8_ranges(CharacterSet({{character, character}})).front();
  for (size_t i = 0; i < bytes.size; ++i) text += static_cast<char>(bytes.first[i]);
}

class ExpressionWriter {
 public:
  ExpressionWriter(Expressions& out, const RegexTree& tree, const SourceText& text, RegexMatch match,
                   TextForm form)
      : out_(out), tree_(tree), text_(text), match_(match), form_(form) {}

  Result<ExpressionId> write() { return write_choice(tree_.root(), 0); }

 private:
  ExpressionId anything() {
    return out_.repeat(character_of(out_, CharacterSet({{0, kLastCharacter}}), form_), 0, kUnbounded);
  }

  Result<ExpressionId> write_choice(const RegexNode& node, int depth) {
    std::vector<ExpressionId> branches;
    for (const uint32_t part : node.parts) {
      TSR_ASSIGN_OR_RETURN(const ExpressionId branch, write_sequence(tree_.nodes[part], depth));
      branches.push_back(branch);
    }
    return out_.choice(std::move(branches));
  }

  // Consecutive single characters form one literal.
  Result<ExpressionId> write_sequence(const RegexNode& node, int depth) {
    std::vector<ExpressionId> parts;
    std::string literal;
    const auto flush = [&] {
      if (!literal.empty()) parts.push_back(out_.literal(written(literal, form_)));
      literal.clear();
    };
    bool is_anchored_at_start = false, is_anchored_at_end = false;
    for (size_t i = 0; i < node.parts.size(); ++i) {
      const RegexNode& part = tree_.nodes[node.parts[i]];
      if (part.kind == Kind::kStart) {
        if (depth > 0 || i > 0)
          return text_.unsupported("anchors within an expression ('^' after its beginning) are", part.begin);
        is_anchored_at_start = true;
      } else if (part.kind == Kind::kEnd) {
        if (depth > 0 || i + 1 < node.parts.size())
          return text_.unsupported("anchors within an expression ('$' before its end) are", part.begin);
        is_anchored_at_end = true;
      } else if (is_single(part)) {
        append_utf8(literal, part.set.ranges()[0].first);
      } else {
        flush();
        TSR_ASSIGN_OR_RETURN(const ExpressionId written_part, write_atom(part, depth));
        parts.push_back(written_part);
      }
    }
    flush();
    if (depth == 0 && match_ == RegexMatch::kSearch) {
      if (!is_anchored_at_start) parts.insert(parts.begin(), anything());
      if (!is_anchored_at_end) parts.push_back(anything());
    }
    return out_.sequence(std::move(parts));
  }

  Result<ExpressionId> write_atom(const RegexNode& node, int depth) {
    switch (node.kind) {
      case Kind::kChoice: return write_choice(node, depth + 1);
      case Kind::kRepeat: {
        const RegexNode& body = tree_.nodes[node.parts[0]];
        ExpressionId repeated = 0;
        if (is_single(body)) {
          std::string literal;
          append_utf8(literal, body.set.ranges()[0].first);
          repeated = out_.literal(written(literal, form_));
        } else {
          TSR_ASSIGN_OR_RETURN(repeated, write_atom(body, depth));
        }
        return out_.repeat(repeated, node.minimum, node.maximum);
      }
      case Kind::kLookAhead: return text_.unsupported("look-ahead is", node.begin);
      default: return character_of(out_, node.set, form_);
    }
  }

  Expressions& out_;
  const RegexTree& tree_;
  const SourceText& text_;
  const RegexMatch match_;
  const TextForm form_;
};

}  // namespace

Result<ExpressionId> read_regex(Expressions& out, std::string_view pattern, RegexMatch match, TextForm form,
                                std::string_view what) {
  TSR_ASSIGN_OR_RETURN(SourceText text,
                       SourceText::create(pattern, what, SourceText::Place::kByte, kMostPatternBytes));
  TSR_ASSIGN_OR_RETURN(const RegexTree tree, read_regex_tree(text, form));
  return ExpressionWriter(out, tree, text, match, form).write();
}

}  // namespace tessera::grammar
