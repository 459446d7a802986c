// Literals of Python and of its kin, as models write arguments: {'a': [1, None]}, f(city="x", n=2), and with bare keys
// and quote marks of their own {city:<|"|>x<|"|>,n:2}. Texts come in whole; values nest at most kMostJsonDepth deep.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json.h"

namespace tessera::answer {

// One value; nullopt for what is none. `quote`: strings stand between two of these, and keys are bare words.
std::optional<Json> parse_literal(std::string_view text, std::string_view quote = {});

// "[f(a=1), g()]", or one call without brackets: names and their arguments, objects.
std::optional<std::vector<std::pair<std::string, Json>>> parse_python_calls(std::string_view text);

}  // namespace tessera::answer
