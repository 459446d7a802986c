// GBNF, llama.cpp's language of grammars, as expressions.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "text/grammar/expression.h"

namespace tessera::grammar {

// The rule "root". kInvalidArgument for what is no grammar and for rules that are not defined, kUnsupported for parts
// of the language that are not here; with line and column.
Result<RuleId> read_gbnf(Expressions& out, std::string_view grammar);

}  // namespace tessera::grammar
