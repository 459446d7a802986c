// JSON written by a model or template, or checked only for its form: the last value of
// a repeated key counts, as in Python. In users' files they must agree: parse_json.
#pragma once

#include <string_view>

#include "text/json.h"

namespace tessera {

// Errors of parse_json, except the one for differing values.
Result<Json> parse_json_with_last_keys(std::string_view text, std::string_view what);

}  // namespace tessera
