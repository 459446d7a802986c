#include "graph/sharding_rule.h"

#include <algorithm>

#include "graph/base/status.h"
#include "graph/base/text.h"

namespace tessera {

const Factor* ShardingRule::find(char name) const {
  const auto at = std::ranges::find(factors, name, &Factor::name);
  return at == factors.end() ? nullptr : &*at;
}

Factor* ShardingRule::find(char name) {
  const auto at = std::ranges::find(factors, name, &Factor::name);
  return at == factors.end() ? nullptr : &*at;
}

namespace {

bool is_factor_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// "bt(kg)d" -> {"b", "t", "kg", "d"}; "1" -> {""}.
ShardingRule::OperandDims parse_operand(std::string_view text) {
  ShardingRule::OperandDims dims;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') {
      const size_t close = text.find(')', i);
      TSR_CHECK(close != std::string_view::npos && close > i + 1, "a product of factors wants a closing ')'");
      dims.emplace_back(text.substr(i + 1, close - i - 1));
      i = close;
    } else if (text[i] == '1') {
      dims.emplace_back();
    } else {
      dims.emplace_back(1, text[i]);
    }
    TSR_CHECK(std::ranges::all_of(dims.back(), is_factor_name), "a factor's name is one letter");
  }
  return dims;
}

// Unlike split(), "" is one operand: a scalar.
std::vector<ShardingRule::OperandDims> parse_operands(std::string_view text) {
  std::vector<ShardingRule::OperandDims> operands;
  for (size_t from = 0;;) {
    const size_t comma = text.find(',', from);
    operands.push_back(
        parse_operand(trim(text.substr(from, comma == std::string_view::npos ? comma : comma - from))));
    if (comma == std::string_view::npos) return operands;
    from = comma + 1;
  }
}

std::string operands_text(const std::vector<ShardingRule::OperandDims>& operands) {
  std::vector<std::string> parts;
  for (const ShardingRule::OperandDims& dims : operands) {
    std::string& text = parts.emplace_back();
    for (const std::string& dim : dims) text += dim.empty() ? "1" : dim.size() == 1 ? dim : "(" + dim + ")";
  }
  return join(parts, ",");
}

bool indexes(const std::vector<ShardingRule::OperandDims>& operands, char factor) {
  return std::ranges::any_of(operands, [&](const ShardingRule::OperandDims& dims) {
    return std::ranges::any_of(dims,
                               [&](const std::string& dim) { return dim.find(factor) != std::string::npos; });
  });
}

}  // namespace

ShardingRule parse_rule(std::string_view text) {
  const size_t arrow = text.find("->");
  TSR_CHECK(arrow != std::string_view::npos, "a sharding rule wants '->'");
  ShardingRule rule;
  rule.inputs = parse_operands(text.substr(0, arrow));
  rule.outputs = parse_operands(text.substr(arrow + 2));
  for (const auto* operands : {&rule.inputs, &rule.outputs})
    for (const ShardingRule::OperandDims& dims : *operands)
      for (const std::string& dim : dims)
        for (char name : dim)
          if (rule.find(name) == nullptr) {
            Factor factor;
            factor.name = name;
            factor.kind = indexes(rule.outputs, name) ? FactorKind::kPass : FactorKind::kReduce;
            rule.factors.push_back(factor);
          }
  return rule;
}

// "btk,kn->btn {k: sum}": factors that are neither reduced nor kept whole are not listed.
std::string to_text(const ShardingRule& rule) {
  std::string text = operands_text(rule.inputs) + "->" + operands_text(rule.outputs);
  std::vector<std::string> notes;
  for (const Factor& factor : rule.factors) {
    if (factor.kind == FactorKind::kReduce)
      notes.push_back(format("{}: {}", factor.name, factor.reduce == ReduceKind::kMax ? "max" : "sum"));
    if (factor.kind == FactorKind::kPhased) notes.push_back(format("{}: phased", factor.name));
    if (factor.kind == FactorKind::kReplicate) notes.push_back(format("{}: whole", factor.name));
  }
  return notes.empty() ? text : text + " {" + join(notes, ", ") + "}";
}

}  // namespace tessera
