// GBNF, llama.cpp's language of grammars, as expressions.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "text/grammar/expression.h"

namespace tessera::grammar {

// Returns the rule "root". kInvalidArgument for syntax errors and undefined
// rules, kUnsupported for unsupported parts; with line and column.
Result<RuleId> read_gbnf(Expressions& out, std::string_view grammar);

}  // namespace tessera::grammar
