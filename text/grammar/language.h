// Languages: regular sets of texts as terms closed under intersection and complement, unlike
// expressions. The texts that may follow a character are a term again, its derivative
// (Brzozowski, "Derivatives of Regular Expressions", 1964). Equal terms have one id. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/character_set.h"
#include "text/grammar/expression.h"

namespace tessera::grammar {

using LanguageId = uint32_t;

class Languages {
 public:
  Languages();

  LanguageId nothing() const { return kNothing; }
  LanguageId empty() const { return kEmpty; }  // only the empty text
  LanguageId anything() const { return kAnything; }
  LanguageId characters(const CharacterSet& set);  // one character
  LanguageId text(std::string_view text);          // exactly this text
  LanguageId sequence(LanguageId first, LanguageId second);
  LanguageId choice(std::vector<LanguageId> parts);
  LanguageId both(std::vector<LanguageId> parts);
  LanguageId both(LanguageId a, LanguageId b) { return both(std::vector{a, b}); }
  LanguageId complement(LanguageId of);
  LanguageId without(LanguageId a, LanguageId b) { return both(a, complement(b)); }
  LanguageId repeat(LanguageId of, uint32_t minimum, uint32_t maximum);
  // Digits whose number, after a prefix with this remainder, is a multiple of `step`; no digits
  // count as 0. With a fraction, that many digits follow a point, which the number ignores.
  LanguageId multiples(uint32_t step, uint32_t fraction = 0, uint32_t remainder = 0);
  // Converts an expression. kUnsupported for recursive rules.
  Result<LanguageId> of_expression(const Expressions& expressions, ExpressionId id, int depth = 0);

  bool is_nullable(LanguageId id) const { return terms_[id].is_nullable; }
  LanguageId derivative(LanguageId id, uint32_t character);
  bool contains(LanguageId id, std::string_view text);
  // Sets of characters that no subterm distinguishes.
  std::vector<CharacterSet> character_classes(LanguageId id) const;

  // kUnsupported after too many terms; results are then invalid.
  const Status& status() const { return status_; }

 private:
  enum class Kind : uint8_t { kEmpty, kCharacters, kSequence, kChoice, kBoth, kComplement, kRepeat, kMultiples };
  struct Term {
    Kind kind = Kind::kEmpty;
    bool is_nullable = false;
    uint32_t value = 0, minimum = 0, maximum = 0;  // value: a set, or a step
    std::vector<LanguageId> parts;
    auto key() const { return std::tie(kind, value, minimum, maximum, parts); }
  };
  struct Less {
    bool operator()(const Term& a, const Term& b) const { return a.key() < b.key(); }
  };
  static constexpr LanguageId kNothing = 0, kEmpty = 1, kAnything = 2;
  static constexpr size_t kMostTerms = size_t{1} << 16, kMostParts = size_t{1} << 20;
  static constexpr int kMostDepth = 300;  // of nested derivatives; small enough for any stack

  LanguageId add(Term term);
  uint32_t add_set(const CharacterSet& set);
  LanguageId derive(const Term& term, uint32_t character);
  void flatten(Kind kind, std::span<const LanguageId> parts, std::vector<LanguageId>& flat) const;

  std::vector<Term> terms_;
  std::map<Term, LanguageId, Less> ids_;
  std::vector<CharacterSet> sets_;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, uint32_t> set_ids_;
  std::map<std::pair<LanguageId, uint32_t>, LanguageId> derivatives_;
  size_t parts_ = 0;
  int depth_ = 0;
  Status status_;
};

}  // namespace tessera::grammar
