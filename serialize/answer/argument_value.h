// Values of arguments from their text.
#pragma once

#include <string_view>

#include "serialize/json.h"

namespace tessera::answer {

// null for a text that is not JSON or beyond the bounds of PayloadScanner; an object or array otherwise.
Json parse_bounded_json(std::string_view text);

// A parameter that is written bare: 4, true, Paris, {"k": 1}, {'k': None}. Where the tool's schema says that it is a
// text, it is one; otherwise what reads as a value that is no text is that value.
Json argument_value(std::string_view raw, const Json& tools, std::string_view tool, std::string_view key);

}  // namespace tessera::answer
