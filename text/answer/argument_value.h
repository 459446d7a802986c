// Parses the values of arguments.
#pragma once

#include <string_view>

#include "text/answer/argument_schema.h"
#include "text/json.h"

namespace tessera::answer {

// null for text that is not JSON or exceeds the bounds of PayloadScanner; else an object or array.
Json parse_bounded_json(std::string_view text);

// Parses a bare parameter: 4, true, Paris, {"k": 1}, {'k': None}. A text if the schema names and
// allows one, or allows nothing else; null precedes the text "null" if both are allowed. Without a
// schema anything that parses is that value. `may_be_text`: false if the answer marks it as no text.
Json argument_value(std::string_view raw, const ArgumentSchema& schema, bool may_be_text = true);

// Whether the schema declares `raw` to be a text.
bool is_declared_text(std::string_view raw, const ArgumentSchema& schema);

}  // namespace tessera::answer
