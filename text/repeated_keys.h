// JSON that a model or a template wrote, or whose form alone is asked for: of a key that an object has twice the last value
// counts, as in Python. In users' files the two must agree: parse_json.
#pragma once

#include <string_view>

#include "text/json.h"

namespace tessera {

// The errors of parse_json, without the one for values that differ.
Result<Json> parse_json_with_last_keys(std::string_view text, std::string_view what);

}  // namespace tessera
