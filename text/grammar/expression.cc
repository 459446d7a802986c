#include "text/grammar/expression.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera::grammar {
namespace {

constexpr uint64_t kMostExpandedNodes = 64;            // of an unrolled repetition
constexpr uint64_t kMostExpandedNullableNodes = 4096;  // counting cannot distinguish empty repetitions

// Number of nodes of an unrolled repetition.
uint64_t expanded_size(uint32_t body, uint32_t minimum, uint32_t maximum) {
  const uint64_t copies =
      maximum == kUnbounded ? std::max<uint64_t>(minimum, 1) : std::max<uint64_t>(maximum, 1);
  return copies * (uint64_t{body} + 1);
}

}  // namespace

ExpressionId Expressions::add(Expression expression, std::span<const ExpressionId> operands) {
  if (status_.ok() && expressions_.size() >= kMostExpressions)
    status_ = Status(StatusCode::kUnsupported,
                     format("the grammar is too large: more than {} parts", kMostExpressions));
  uint64_t size = expression.size;
  expression.has_calls = expression.kind == ExpressionKind::kCall;
  for (const ExpressionId operand : operands) {
    expression.has_calls = expression.has_calls || expressions_[operand].has_calls;
    expression.depth = std::max(expression.depth, expressions_[operand].depth + 1);
    size += expressions_[operand].size;
  }
  if (status_.ok() && expression.depth > kMostExpressionDepth)
    status_ =
        Status(StatusCode::kUnsupported, format("the grammar nests deeper than {}", kMostExpressionDepth));
  if (!status_.ok() && !expressions_.empty()) return 0;
  expression.size = static_cast<uint32_t>(std::min<uint64_t>(size, UINT32_MAX));
  expression.is_nullable = is_nullable(expression, operands);
  expression.first_operand = static_cast<uint32_t>(operands_.size());
  expression.operand_count = static_cast<uint32_t>(operands.size());
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  required_.resize(operands_.size());
  expressions_.push_back(expression);
  return static_cast<ExpressionId>(expressions_.size() - 1);
}

bool Expressions::is_nullable(const Expression& expression, std::span<const ExpressionId> operands) const {
  const auto is_empty = [&](ExpressionId id) { return expressions_[id].is_nullable; };
  switch (expression.kind) {
    case ExpressionKind::kLiteral: return texts_[expression.value].empty();
    case ExpressionKind::kSequence: return std::ranges::all_of(operands, is_empty);
    case ExpressionKind::kChoice: return std::ranges::any_of(operands, is_empty);
    case ExpressionKind::kRepeat:
    case ExpressionKind::kCounted: return expression.minimum == 0 || is_empty(operands[0]);
    case ExpressionKind::kCall: {
      const ExpressionId body = rules_[expression.value].expression;
      return body != kUnbounded && is_empty(body);
    }
    default: return false;
  }
}

ExpressionId Expressions::literal(std::string_view bytes) {
  texts_.emplace_back(bytes);
  Expression expression;
  expression.value = static_cast<uint32_t>(texts_.size() - 1);
  expression.size = static_cast<uint32_t>(std::min<size_t>(bytes.size(), UINT32_MAX));
  return add(expression, {});
}

ExpressionId Expressions::characters(CharacterSet set) {
  Expression expression;
  expression.kind = ExpressionKind::kCharacters;
  expression.value = static_cast<uint32_t>(sets_.size());
  const auto ranges = set.ranges();
  if (!ranges.empty() && ranges.back().last >= 0x80)
    expression.size = static_cast<uint32_t>(8 + ranges.size());
  sets_.push_back(std::move(set));
  return add(expression, {});
}

ExpressionId Expressions::sequence(std::vector<ExpressionId> parts) {
  if (parts.size() == 1) return parts.front();
  if (parts.empty()) return empty();
  Expression expression;
  expression.kind = ExpressionKind::kSequence;
  return add(expression, parts);
}

ExpressionId Expressions::choice(std::vector<ExpressionId> parts) {
  if (parts.size() == 1) return parts.front();
  Expression expression;
  expression.kind = ExpressionKind::kChoice;
  return add(expression, parts);
}

ExpressionId Expressions::repeat(ExpressionId body, uint32_t minimum, uint32_t maximum) {
  TSR_CHECK(minimum <= maximum);
  if (maximum == 0) return empty();
  if (minimum == 1 && maximum == 1) return body;
  const uint32_t largest = maximum == kUnbounded ? minimum : maximum;
  if (status_.ok() && largest > kMostRepetitions)
    status_ = Status(StatusCode::kUnsupported,
                     format("a repetition has the bound {}, wanted at most {}", largest, kMostRepetitions));
  if (!status_.ok()) return empty();
  const Expression& operand = expressions_[body];
  if (operand.kind == ExpressionKind::kCall) {
    // X{a,b}{c,d} becomes X{ac,bd} if the counts have no gaps; nested counters would multiply.
    const ExpressionId rule = rules_[operand.value].expression;
    if (rule != kUnbounded && expressions_[rule].kind == ExpressionKind::kCounted) {
      const Expression inner = expressions_[rule];
      const uint64_t a = inner.minimum, b = inner.maximum, c = minimum, d = maximum;
      const bool has_no_gaps = inner.maximum == kUnbounded ? c > 0 : c == d || (c + 1) * a <= c * b + 1;
      const bool is_unbounded = inner.maximum == kUnbounded || maximum == kUnbounded;
      if (has_no_gaps && a * c <= kMostRepetitions && (is_unbounded || b * d <= kMostRepetitions) && c > 0)
        return repeat(operands(inner)[0], static_cast<uint32_t>(a * c),
                      is_unbounded ? kUnbounded : static_cast<uint32_t>(b * d));
    }
  }
  if (operand.is_nullable && maximum == kUnbounded) minimum = 0;  // the same texts
  Expression expression;
  expression.kind = ExpressionKind::kRepeat;
  expression.minimum = minimum;
  expression.maximum = maximum;
  const uint64_t size = expanded_size(operand.size, minimum, maximum);
  if (size <= (operand.is_nullable ? kMostExpandedNullableNodes : kMostExpandedNodes) ||
      (maximum == kUnbounded && minimum <= 1) || maximum == 1) {
    expression.size = static_cast<uint32_t>(std::min<uint64_t>(size - operand.size, UINT32_MAX));
    return add(expression, {&body, 1});
  }
  expression.kind = ExpressionKind::kCounted;
  const RuleId rule = declare_rule(format("repetition {}", rules_.size()));
  define_rule(rule, add(expression, {&body, 1}));
  return call(rule);
}

ExpressionId Expressions::call(RuleId rule) {
  Expression expression;
  expression.kind = ExpressionKind::kCall;
  expression.value = rule;
  return add(expression, {});
}

ExpressionId Expressions::literals(std::vector<std::string> texts) {
  Expression expression;
  expression.kind = ExpressionKind::kLiterals;
  expression.value = static_cast<uint32_t>(texts_.size());
  expression.minimum = static_cast<uint32_t>(texts.size());
  uint64_t size = 1;
  for (std::string& text : texts) {
    size += text.size() + 1;
    texts_.push_back(std::move(text));
  }
  expression.size = static_cast<uint32_t>(std::min<uint64_t>(size, UINT32_MAX));
  return add(expression, {});
}

ExpressionId Expressions::members(ExpressionId separator, std::span<const Member> members) {
  Expression expression;
  expression.kind = ExpressionKind::kMembers;
  std::vector<ExpressionId> operands{separator};
  for (const Member& member : members) operands.push_back(member.expression);
  const ExpressionId id = add(expression, operands);
  if (!status_.ok()) return id;
  for (size_t i = 0; i < members.size(); ++i)
    required_[expressions_[id].first_operand + 1 + i] = members[i].is_required;
  return id;
}

ExpressionId Expressions::shared(ExpressionId expression, std::string name) {
  constexpr uint32_t kSmall = 4;
  if (expressions_[expression].size <= kSmall) return expression;
  const RuleId rule = declare_rule(std::move(name));
  define_rule(rule, sequence({empty(), expression}));
  return call(rule);
}

RuleId Expressions::declare_rule(std::string name) {
  rules_.push_back({std::move(name), kUnbounded});
  return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace tessera::grammar
