// Expressions: the rules of a grammar as expression trees, the common target of all sources (JSON
// schema, regular expression, choices, GBNF). Append-only; operands precede their users. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/character_set.h"

namespace tessera::grammar {

using ExpressionId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kUnbounded = UINT32_MAX;
inline constexpr uint32_t kMostRepetitions = 1u << 24;  // larger bounds are refused
inline constexpr uint32_t kMostExpressionDepth = 250;   // nesting of operands
inline constexpr size_t kMostExpressions = size_t{1} << 20;

enum class ExpressionKind : uint8_t {
  kLiteral,     // texts[value], bytes; may be empty
  kCharacters,  // one character of sets[value]
  kSequence,    // all operands, in order
  kChoice,      // one operand; without operands nothing matches
  kRepeat,      // its operand, minimum to maximum times; unrolled
  kCounted,     // likewise with a counter; only as a whole rule
  kCall,        // rule `value`
  kLiterals,    // one of the texts [value, value + minimum)
  kMembers,  // the first operand separates the others that are present; is_required marks mandatory ones
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kLiteral;
  uint32_t value = 0;
  uint32_t first_operand = 0, operand_count = 0;
  uint32_t minimum = 0, maximum = 0;
  uint32_t depth = 1, size = 1;  // size: approximate automaton nodes
  bool has_calls = false;        // of rules
  bool is_nullable = false;      // matches the empty text, as far as known without called rules
};

struct Member {
  ExpressionId expression = 0;
  bool is_required = false;
};

class Expressions {
 public:
  ExpressionId empty() { return literal({}); }
  ExpressionId nothing() { return choice({}); }
  ExpressionId literal(std::string_view bytes);
  ExpressionId characters(CharacterSet set);
  ExpressionId sequence(std::vector<ExpressionId> parts);
  ExpressionId choice(std::vector<ExpressionId> parts);
  ExpressionId optional(ExpressionId part) { return repeat(part, 0, 1); }
  // minimum <= maximum; kUnbounded: no maximum. Small repetitions, and those of
  // nullable operands, are unrolled; others get a counter, in a rule of their own.
  ExpressionId repeat(ExpressionId body, uint32_t minimum, uint32_t maximum);
  ExpressionId call(RuleId rule);
  ExpressionId literals(std::vector<std::string> texts);
  // Ordered members with a separator between them.
  ExpressionId members(ExpressionId separator, std::span<const Member> members);

  // The expression, wrapped in a rule if large; for repeated use.
  ExpressionId shared(ExpressionId expression, std::string name);

  RuleId declare_rule(std::string name);
  void define_rule(RuleId rule, ExpressionId expression) { rules_[rule].expression = expression; }

  // The first limit exceeded; expressions are then incomplete.
  const Status& status() const { return status_; }

  struct Rule {
    std::string name;  // for messages
    ExpressionId expression = kUnbounded;
  };
  std::span<const Rule> rules() const { return rules_; }
  size_t size() const { return expressions_.size(); }
  const Expression& operator[](ExpressionId id) const { return expressions_[id]; }
  std::span<const ExpressionId> operands(const Expression& expression) const {
    return std::span(operands_).subspan(expression.first_operand, expression.operand_count);
  }
  bool is_required(const Expression& expression, size_t operand) const {
    return required_[expression.first_operand + operand];
  }
  const std::string& text(uint32_t value) const { return texts_[value]; }
  const CharacterSet& set(uint32_t value) const { return sets_[value]; }

 private:
  ExpressionId add(Expression expression, std::span<const ExpressionId> operands);
  bool is_nullable(const Expression& expression, std::span<const ExpressionId> operands) const;
  std::vector<Expression> expressions_;
  std::vector<ExpressionId> operands_;
  std::vector<bool> required_;  // by operand
  std::vector<std::string> texts_;
  std::vector<CharacterSet> sets_;
  std::vector<Rule> rules_;
  Status status_;
};

}  // namespace tessera::grammar
