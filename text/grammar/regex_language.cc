#include "text/grammar/regex_language.h"

#include <algorithm>

#include "text/grammar/regex_tree.h"
#include "text/grammar/source_text.h"

namespace tessera::grammar {
namespace {

using Kind = RegexNode::Kind;

// AtStart: whether a place is the text's begin.
enum class AtStart : uint8_t { kYes, kNo, kPerhaps };

class LanguageReader {
 public:
  LanguageReader(Languages& languages, const RegexTree& tree, const SourceText& text, bool is_excluded)
      : languages_(languages), tree_(tree), text_(text), is_excluded_(is_excluded) {}

  Result<LanguageId> read(RegexMatch match) {
    const bool searches = match == RegexMatch::kSearch;
    const LanguageId rest = searches ? languages_.anything() : languages_.empty();
    TSR_ASSIGN_OR_RETURN(const LanguageId at_start, before(tree_.root(), rest, AtStart::kYes));
    if (!searches) return at_start;
    TSR_ASSIGN_OR_RETURN(const LanguageId later, before(tree_.root(), rest, AtStart::kNo));
    const LanguageId any_character = languages_.characters(CharacterSet({{0, kLastCharacter}}));
    const LanguageId some = languages_.repeat(any_character, 1, kUnbounded);
    return languages_.choice({at_start, languages_.sequence(some, later)});
  }

 private:
  static constexpr uint32_t kMostUnrolled = 64;

  bool has_place(const RegexNode& node) const {
    return node.kind == Kind::kLookAhead || node.kind == Kind::kStart || node.kind == Kind::kEnd ||
           std::ranges::any_of(node.parts, [this](uint32_t part) { return has_place(tree_.nodes[part]); });
  }
  // Whether it matches only, or also, the empty text.
  bool is_empty(const RegexNode& node) const {
    if (node.kind == Kind::kCharacters) return false;
    if (node.kind == Kind::kSequence || node.kind == Kind::kChoice)
      return std::ranges::all_of(node.parts, [this](uint32_t part) { return is_empty(tree_.nodes[part]); });
    return node.kind != Kind::kRepeat;
  }
  bool may_be_empty(const RegexNode& node) const {
    const auto part_may = [this](uint32_t part) { return may_be_empty(tree_.nodes[part]); };
    if (node.kind == Kind::kCharacters) return false;
    if (node.kind == Kind::kSequence) return std::ranges::all_of(node.parts, part_may);
    if (node.kind == Kind::kChoice) return std::ranges::any_of(node.parts, part_may);
    if (node.kind == Kind::kRepeat) return node.minimum == 0 || part_may(node.parts[0]);
    return true;
  }

  CharacterSet characters(const CharacterSet& set) const {
    const bool has_digits = set.contains('0') && set.contains('9') && set.contains('5');
    if (!is_excluded_ || !has_digits) return set;
    std::vector<CharacterRange> ranges(set.ranges().begin(), set.ranges().end());
    ranges.push_back({0x80, kLastCharacter});
    return CharacterSet(std::move(ranges));
  }

  // Texts with a prefix that matches the node and a remainder in `rest`.
  Result<LanguageId> before(const RegexNode& node, LanguageId rest, AtStart start) {
    TSR_RETURN_IF_ERROR(languages_.status());
    switch (node.kind) {
      case Kind::kCharacters: return languages_.sequence(languages_.characters(characters(node.set)), rest);
      case Kind::kStart:
        if (start == AtStart::kPerhaps)
          return text_.unsupported("anchors within an expression ('^' behind what may be empty) are", node.begin);
        return start == AtStart::kYes ? rest : languages_.nothing();
      case Kind::kEnd: return languages_.both(rest, languages_.empty());
      case Kind::kLookAhead: {
        is_excluded_ = is_excluded_ != node.is_negative;
        const auto ahead_or = before(tree_.nodes[node.parts[0]], languages_.anything(), start);
        is_excluded_ = is_excluded_ != node.is_negative;
        TSR_ASSIGN_OR_RETURN(const LanguageId ahead, ahead_or);
        return languages_.both(rest, node.is_negative ? languages_.complement(ahead) : ahead);
      }
      case Kind::kChoice: {
        std::vector<LanguageId> parts;
        for (const uint32_t part : node.parts) {
          TSR_ASSIGN_OR_RETURN(const LanguageId branch, before(tree_.nodes[part], rest, start));
          parts.push_back(branch);
        }
        return languages_.choice(std::move(parts));
      }
      case Kind::kSequence: {
        std::vector<AtStart> starts;
        for (const uint32_t part : node.parts) {
          starts.push_back(start);
          if (start != AtStart::kNo && !is_empty(tree_.nodes[part]))
            start = may_be_empty(tree_.nodes[part]) ? AtStart::kPerhaps : AtStart::kNo;
        }
        for (size_t i = node.parts.size(); i-- > 0;) {
          TSR_ASSIGN_OR_RETURN(rest, before(tree_.nodes[node.parts[i]], rest, starts[i]));
        }
        return rest;
      }
      case Kind::kRepeat: return before_repeat(node, rest, start);
    }
    return languages_.nothing();
  }

  Result<LanguageId> before_repeat(const RegexNode& node, LanguageId rest, AtStart start) {
    const RegexNode& body = tree_.nodes[node.parts[0]];
    if (!has_place(body)) {
      TSR_ASSIGN_OR_RETURN(const LanguageId once, before(body, languages_.empty(), start));
      return languages_.sequence(languages_.repeat(once, node.minimum, node.maximum), rest);
    }
    if (node.maximum > kMostUnrolled)
      return text_.unsupported("look-ahead and anchors in long repetitions are", node.begin);
    // From the last repetition to the first.
    const AtStart later = start == AtStart::kNo ? AtStart::kNo : AtStart::kPerhaps;
    LanguageId whole = rest;
    for (uint32_t i = node.maximum; i-- > 0;) {
      TSR_ASSIGN_OR_RETURN(const LanguageId once, before(body, whole, i == 0 ? start : later));
      whole = i >= node.minimum ? languages_.choice({once, rest}) : once;
    }
    return whole;
  }

  Languages& languages_;
  const RegexTree& tree_;
  const SourceText& text_;
  bool is_excluded_;
};

// A pattern's shape, bottom-up.
RegexShape shape_of(const RegexTree& tree, const RegexNode& node, bool is_top) {
  constexpr auto sum = [](uint32_t a, uint32_t b) {
    return a == kUnbounded || b == kUnbounded || uint64_t{a} + b >= kUnbounded ? kUnbounded : a + b;
  };
  constexpr auto product = [](uint32_t a, uint32_t b) {
    if (a == 0 || b == 0) return uint32_t{0};
    return a == kUnbounded || b == kUnbounded || uint64_t{a} * b >= kUnbounded ? kUnbounded : a * b;
  };
  RegexShape shape{true, 0, 0};
  switch (node.kind) {
    case Kind::kCharacters: return {true, 1, 1};
    case Kind::kStart:
    case Kind::kEnd:
    case Kind::kLookAhead: return {false, 0, 0};
    case Kind::kSequence:
      for (size_t i = 0; i < node.parts.size(); ++i) {
        const RegexNode& part = tree.nodes[node.parts[i]];
        const bool is_end = is_top && ((part.kind == Kind::kStart && i == 0) ||
                                       (part.kind == Kind::kEnd && i + 1 == node.parts.size()));
        if (is_end) continue;
        const RegexShape each = shape_of(tree, part, false);
        shape = {shape.is_simple && each.is_simple, sum(shape.shortest, each.shortest),
                 sum(shape.longest, each.longest)};
      }
      return shape;
    case Kind::kChoice:
      shape.shortest = kUnbounded;
      for (const uint32_t part : node.parts) {
        const RegexShape each = shape_of(tree, tree.nodes[part], is_top);
        shape = {shape.is_simple && each.is_simple, std::min(shape.shortest, each.shortest),
                 std::max(shape.longest, each.longest)};
      }
      return shape;
    case Kind::kRepeat: {
      const RegexShape each = shape_of(tree, tree.nodes[node.parts[0]], false);
      return {each.is_simple, product(each.shortest, node.minimum), product(each.longest, node.maximum)};
    }
  }
  return shape;
}

// Whether each alternative has both anchors, so that the match is the whole text.
bool is_anchored(const RegexTree& tree) {
  return std::ranges::all_of(tree.root().parts, [&](uint32_t part) {
    const auto& parts = tree.nodes[part].parts;
    return !parts.empty() && tree.nodes[parts.front()].kind == Kind::kStart &&
           tree.nodes[parts.back()].kind == Kind::kEnd;
  });
}

}  // namespace

Result<LanguageId> regex_language(Languages& languages, std::string_view pattern, RegexMatch match,
                                  std::string_view what, bool is_excluded) {
  TSR_ASSIGN_OR_RETURN(SourceText text,
                       SourceText::create(pattern, what, SourceText::Place::kByte, kMostPatternBytes));
  TSR_ASSIGN_OR_RETURN(const RegexTree tree, read_regex_tree(text, TextForm::kJsonString));
  TSR_ASSIGN_OR_RETURN(const LanguageId language,
                       LanguageReader(languages, tree, text, is_excluded).read(match));
  TSR_RETURN_IF_ERROR(languages.status());
  return language;
}

Result<RegexShape> shape_of_regex(std::string_view pattern, RegexMatch match, std::string_view what) {
  TSR_ASSIGN_OR_RETURN(SourceText text,
                       SourceText::create(pattern, what, SourceText::Place::kByte, kMostPatternBytes));
  TSR_ASSIGN_OR_RETURN(const RegexTree tree, read_regex_tree(text, TextForm::kJsonString));
  RegexShape shape = shape_of(tree, tree.root(), true);
  if (match == RegexMatch::kSearch && !is_anchored(tree)) shape.longest = kUnbounded;
  return shape;
}

}  // namespace tessera::grammar
