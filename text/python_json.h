// JSON as Python's module writes it, with NaN, Infinity and -Infinity as numbers. They become objects, {"__float__": "Infinity"}, the form
// in which transformers writes them.
#pragma once

#include <string>
#include <string_view>

#include "text/json.h"

namespace tessera {

// The text with such objects; all else is unchanged.
std::string strict_json(std::string_view text);

// As parse_json.
Result<Json> parse_python_json(std::string_view text, std::string_view what);

}  // namespace tessera
