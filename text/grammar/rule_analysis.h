// RuleAnalysis: which expressions match the empty text, which match any text, and ranks that
// order every rule above those that begin with it. Linear in the grammar, without recursion.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/expression.h"

namespace tessera::grammar {

struct RuleAnalysis {
  std::vector<bool> is_nullable;    // by expression: matches the empty text
  std::vector<bool> is_productive;  // by expression: matches some text
  std::vector<uint32_t> rank;  // by rule: above that of every rule that begins with it; 0: unreachable
};

// All rules must be defined. kUnsupported for left recursion,
// naming the rules, and for counted repetitions of nullable parts.
Result<RuleAnalysis> analyze_rules(const Expressions& expressions, RuleId root);

}  // namespace tessera::grammar
