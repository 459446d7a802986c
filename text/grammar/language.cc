#include "text/grammar/language.h"

#include <algorithm>
#include <set>

#include "graph/base/text.h"
#include "text/grammar/source_text.h"

namespace tessera::grammar {
namespace {

CharacterSet all_characters() { return CharacterSet({{0, kLastCharacter}}); }
CharacterSet common(const CharacterSet& a, const CharacterSet& b) { return a.without(b.complement()); }
CharacterSet united(const CharacterSet& a, const CharacterSet& b) {
  std::vector<CharacterRange> ranges(a.ranges().begin(), a.ranges().end());
  ranges.insert(ranges.end(), b.ranges().begin(), b.ranges().end());
  return CharacterSet(std::move(ranges));
}

}  // namespace

Languages::Languages() {
  Term term;
  term.kind = Kind::kCharacters;
  term.value = add_set({});
  add(term);  // kNothing
  term = {};
  term.is_nullable = true;
  add(term);  // kEmpty
  term = {};
  term.kind = Kind::kComplement;
  term.is_nullable = true;
  term.parts = {kNothing};
  add(term);  // kAnything
}

uint32_t Languages::add_set(const CharacterSet& set) {
  std::vector<std::pair<uint32_t, uint32_t>> key;
  for (const CharacterRange& range : set.ranges()) key.emplace_back(range.first, range.last);
  const auto [found, is_new] = set_ids_.try_emplace(std::move(key), static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return found->second;
}

LanguageId Languages::add(Term term) {
  if (const auto found = ids_.find(term); found != ids_.end()) return found->second;
  parts_ += term.parts.size();
  if (terms_.size() >= kMostTerms || parts_ > kMostParts) {
    if (status_.ok())
      status_ = Status(StatusCode::kUnsupported,
                       format("the limits of a text together are too large: more than {} parts", kMostTerms));
    return kNothing;
  }
  const auto id = static_cast<LanguageId>(terms_.size());
  ids_.emplace(term, id);
  terms_.push_back(std::move(term));
  return id;
}

LanguageId Languages::characters(const CharacterSet& set) {
  Term term;
  term.kind = Kind::kCharacters;
  term.value = add_set(set);
  return add(std::move(term));
}

LanguageId Languages::text(std::string_view text) {
  auto source = SourceText::create(text, "", SourceText::Place::kByte, SIZE_MAX);
  if (!source.ok()) return kNothing;
  std::vector<uint32_t> all;
  while (!source->is_at_end()) all.push_back(source->take());
  LanguageId id = kEmpty;
  for (size_t i = all.size(); i-- > 0;) id = sequence(characters(CharacterSet({{all[i], all[i]}})), id);
  return id;
}

LanguageId Languages::sequence(LanguageId first, LanguageId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  if (first == kAnything && second == kAnything) return kAnything;
  if (terms_[first].kind == Kind::kSequence) {
    std::vector<LanguageId> heads;
    LanguageId last = first;
    for (; terms_[last].kind == Kind::kSequence; last = terms_[last].parts[1])
      heads.push_back(terms_[last].parts[0]);
    LanguageId whole = sequence(last, second);
    for (size_t i = heads.size(); i-- > 0;) whole = sequence(heads[i], whole);
    return whole;
  }
  Term term;
  term.kind = Kind::kSequence;
  term.is_nullable = is_nullable(first) && is_nullable(second);
  term.parts = {first, second};
  return add(std::move(term));
}

void Languages::flatten(Kind kind, std::span<const LanguageId> parts, std::vector<LanguageId>& flat) const {
  for (const LanguageId part : parts) {
    if (terms_[part].kind == kind)
      flat.insert(flat.end(), terms_[part].parts.begin(), terms_[part].parts.end());
    else
      flat.push_back(part);
  }
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
}

LanguageId Languages::choice(std::vector<LanguageId> parts) {
  std::vector<LanguageId> flat;
  flatten(Kind::kChoice, parts, flat);
  if (std::ranges::find(flat, kAnything) != flat.end()) return kAnything;
  CharacterSet set;
  std::erase_if(flat, [&](LanguageId part) {
    if (terms_[part].kind != Kind::kCharacters) return false;
    set = united(set, sets_[terms_[part].value]);
    return true;
  });
  if (!set.is_empty()) {
    flat.push_back(characters(set));
    std::ranges::sort(flat);
  }
  if (flat.empty()) return kNothing;
  if (flat.size() == 1) return flat[0];
  Term term;
  term.kind = Kind::kChoice;
  term.is_nullable = std::ranges::any_of(flat, [this](LanguageId part) { return is_nullable(part); });
  term.parts = std::move(flat);
  return add(std::move(term));
}

LanguageId Languages::both(std::vector<LanguageId> parts) {
  std::vector<LanguageId> flat;
  flatten(Kind::kBoth, parts, flat);
  if (std::ranges::find(flat, kNothing) != flat.end()) return kNothing;
  std::erase(flat, kAnything);
  const bool all_nullable = std::ranges::all_of(flat, [this](LanguageId part) { return is_nullable(part); });
  if (std::ranges::find(flat, kEmpty) != flat.end()) return all_nullable ? kEmpty : kNothing;
  CharacterSet set = all_characters();
  size_t sets = 0;
  std::erase_if(flat, [&](LanguageId part) {
    if (terms_[part].kind != Kind::kCharacters) return false;
    set = common(set, sets_[terms_[part].value]);
    ++sets;
    return true;
  });
  if (sets > 0) {
    const LanguageId part = characters(set);
    if (part == kNothing) return kNothing;
    flat.push_back(part);
    std::ranges::sort(flat);
  }
  for (const LanguageId part : flat)
    if (terms_[part].kind == Kind::kComplement && std::ranges::binary_search(flat, terms_[part].parts[0]))
      return kNothing;
  if (flat.empty()) return kAnything;
  if (flat.size() == 1) return flat[0];
  Term term;
  term.kind = Kind::kBoth;
  term.is_nullable = all_nullable;
  term.parts = std::move(flat);
  return add(std::move(term));
}

LanguageId Languages::complement(LanguageId of) {
  if (terms_[of].kind == Kind::kComplement) return terms_[of].parts[0];
  Term term;
  term.kind = Kind::kComplement;
  term.is_nullable = !is_nullable(of);
  term.parts = {of};
  return add(std::move(term));
}

LanguageId Languages::repeat(LanguageId of, uint32_t minimum, uint32_t maximum) {
  if (maximum == 0 || of == kEmpty) return kEmpty;
  if (of == kNothing) return minimum == 0 ? kEmpty : kNothing;
  if (minimum == 1 && maximum == 1) return of;
  if (of == kAnything) return kAnything;
  if (minimum == 0 && maximum == kUnbounded && terms_[of].kind == Kind::kCharacters &&
      sets_[terms_[of].value].complement().is_empty())
    return kAnything;
  Term term;
  term.kind = Kind::kRepeat;
  term.is_nullable = minimum == 0 || is_nullable(of);
  term.minimum = minimum;
  term.maximum = maximum;
  term.parts = {of};
  return add(std::move(term));
}

LanguageId Languages::multiples(uint32_t step, uint32_t fraction, uint32_t remainder) {
  Term term;
  term.kind = Kind::kMultiples;
  term.is_nullable = remainder == 0 && fraction == 0;
  term.value = step;
  term.minimum = remainder;
  term.maximum = fraction;
  return add(std::move(term));
}

Result<LanguageId> Languages::of_expression(const Expressions& expressions, ExpressionId id, int depth) {
  if (depth > 250)
    return Status(StatusCode::kUnsupported, "rules that call themselves are no regular expression");
  const Expression& expression = expressions[id];
  const auto operand = [&](size_t i) {
    return of_expression(expressions, expressions.operands(expression)[i], depth + 1);
  };
  switch (expression.kind) {
    case ExpressionKind::kLiteral: return text(expressions.text(expression.value));
    case ExpressionKind::kCharacters: return characters(expressions.set(expression.value));
    case ExpressionKind::kSequence: {
      LanguageId whole = kEmpty;
      for (size_t i = expression.operand_count; i-- > 0;) {
        TSR_ASSIGN_OR_RETURN(const LanguageId part, operand(i));
        whole = sequence(part, whole);
      }
      return whole;
    }
    case ExpressionKind::kChoice: {
      std::vector<LanguageId> parts;
      for (size_t i = 0; i < expression.operand_count; ++i) {
        TSR_ASSIGN_OR_RETURN(const LanguageId part, operand(i));
        parts.push_back(part);
      }
      return choice(std::move(parts));
    }
    case ExpressionKind::kRepeat:
    case ExpressionKind::kCounted: {
      TSR_ASSIGN_OR_RETURN(const LanguageId part, operand(0));
      return repeat(part, expression.minimum, expression.maximum);
    }
    case ExpressionKind::kCall:
      return of_expression(expressions, expressions.rules()[expression.value].expression, depth + 1);
    case ExpressionKind::kLiterals: {
      std::vector<LanguageId> parts;
      for (uint32_t i = 0; i < expression.minimum; ++i)
        parts.push_back(text(expressions.text(expression.value + i)));
      return choice(std::move(parts));
    }
    case ExpressionKind::kMembers: break;
  }
  return Status(StatusCode::kUnsupported, "members are no regular expression");
}

LanguageId Languages::derivative(LanguageId id, uint32_t character) {
  if (id == kNothing || id == kEmpty) return kNothing;
  if (id == kAnything) return kAnything;
  if (const auto found = derivatives_.find({id, character}); found != derivatives_.end())
    return found->second;
  if (!status_.ok()) return kNothing;
  if (depth_ > kMostDepth) {
    status_ = Status(StatusCode::kUnsupported,
                     format("the limits of a text nest deeper than {} together", kMostDepth));
    return kNothing;
  }
  ++depth_;
  const LanguageId derived = derive(Term(terms_[id]), character);
  --depth_;
  derivatives_.emplace(std::pair(id, character), derived);
  return derived;
}

LanguageId Languages::derive(const Term& term, uint32_t character) {
  switch (term.kind) {
    case Kind::kEmpty: return kNothing;
    case Kind::kCharacters: return sets_[term.value].contains(character) ? kEmpty : kNothing;
    case Kind::kSequence: {
      const LanguageId first = sequence(derivative(term.parts[0], character), term.parts[1]);
      if (!is_nullable(term.parts[0])) return first;
      return choice({first, derivative(term.parts[1], character)});
    }
    case Kind::kChoice:
    case Kind::kBoth: {
      std::vector<LanguageId> parts;
      for (const LanguageId part : term.parts) parts.push_back(derivative(part, character));
      return term.kind == Kind::kChoice ? choice(std::move(parts)) : both(std::move(parts));
    }
    case Kind::kComplement: return complement(derivative(term.parts[0], character));
    case Kind::kRepeat: {
      const uint32_t least = term.minimum > 0 ? term.minimum - 1 : 0;
      const uint32_t most = term.maximum == kUnbounded ? kUnbounded : term.maximum - 1;
      const LanguageId first = derivative(term.parts[0], character);
      if (first == kNothing) return kNothing;
      return sequence(first, repeat(term.parts[0], least, most));
    }
    case Kind::kMultiples:
      if (character == '.' && term.maximum > 0) {
        const LanguageId digit = characters(CharacterSet({{'0', '9'}}));
        return both(multiples(term.value, 0, term.minimum), repeat(digit, term.maximum, term.maximum));
      }
      if (character < '0' || character > '9') return kNothing;
      return multiples(
          term.value, term.maximum,
          static_cast<uint32_t>((uint64_t{term.minimum} * 10 + (character - '0')) % term.value));
  }
  return kNothing;
}

bool Languages::contains(LanguageId id, std::string_view text) {
  auto source = SourceText::create(text, "", SourceText::Place::kByte, SIZE_MAX);
  if (!source.ok()) return false;
  while (!source->is_at_end()) id = derivative(id, source->take());
  return is_nullable(id);
}

std::vector<CharacterSet> Languages::character_classes(LanguageId id) const {
  std::set<uint32_t> used;
  std::vector<bool> seen(terms_.size());
  std::vector<LanguageId> queue = {id};
  bool has_digits = false;
  while (!queue.empty()) {
    const LanguageId at = queue.back();
    queue.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    if (terms_[at].kind == Kind::kCharacters) used.insert(terms_[at].value);
    has_digits = has_digits || terms_[at].kind == Kind::kMultiples;
    queue.insert(queue.end(), terms_[at].parts.begin(), terms_[at].parts.end());
  }
  std::vector<CharacterSet> sets;
  for (const uint32_t each : used) sets.push_back(sets_[each]);
  for (const char each : has_digits ? std::string_view("0123456789.") : std::string_view())
    sets.push_back(CharacterSet({{static_cast<uint8_t>(each), static_cast<uint8_t>(each)}}));
  std::vector<CharacterSet> classes = {all_characters()};
  for (const CharacterSet& set : sets) {
    std::vector<CharacterSet> finer;
    for (const CharacterSet& each : classes)
      for (CharacterSet part : {common(each, set), each.without(set)})
        if (!part.is_empty()) finer.push_back(std::move(part));
    classes = std::move(finer);
  }
  return classes;
}

}  // namespace tessera::grammar
