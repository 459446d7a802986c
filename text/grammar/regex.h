// Regular expressions as expressions: the part of ECMA-262's language that is regular. Linear in the pattern.
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
  kSearch  // some part of it does, unless ^ and $ say more
};

// kInvalidArgument for what is no expression, kUnsupported for look-around, back-references and the like; both with the
// byte, after `what` the pattern is.
Result<ExpressionId> read_regex(Expressions& out, std::string_view pattern, RegexMatch match, TextForm form,
                                std::string_view what);

}  // namespace tessera::grammar
