// Converts regular expressions, the regular part of ECMA-262's, to expressions. Linear in the pattern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/base/result.h"
#include "text/grammar/json_text.h"

namespace tessera::grammar {

inline constexpr size_t kMostPatternBytes = size_t{64} << 10;

enum class RegexMatch : uint8_t {
  kWhole,  // the whole text matches
  kSearch  // some part matches, unless ^ and $ restrict it
};

// kInvalidArgument for syntax errors, kUnsupported for look-around,
// back-references and the like; with the byte. `what` names the pattern.
Result<ExpressionId> read_regex(Expressions& out, std::string_view pattern, RegexMatch match, TextForm form,
                                std::string_view what);

}  // namespace tessera::grammar
