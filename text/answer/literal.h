// Literals of Python and similar languages in arguments: {'a': [1, None]}, f(city="x", n=2), and with bare keys
// and special quotation marks {city:<|"|>x<|"|>,n:2}. The input is a whole literal, or whole calls, never a prefix
// of one; values nest at most kMostJsonDepth deep.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json.h"

namespace tessera::answer {

// Parses one value; nullopt if invalid. `quote`: the quotation mark of strings; keys are then bare words.
std::optional<Json> parse_literal(std::string_view text, std::string_view quote = {});

// Parses "[f(a=1), g()]", or one call without brackets, to names and argument objects.
std::optional<std::vector<std::pair<std::string, Json>>> parse_python_calls(std::string_view text);

}  // namespace tessera::answer
