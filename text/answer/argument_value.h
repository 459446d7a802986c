// Values of arguments from their text.
#pragma once

#include <string_view>

#include "text/answer/argument_schema.h"
#include "text/json.h"

namespace tessera::answer {

// null for a text that is not JSON or beyond the bounds of PayloadScanner; an object or array otherwise.
Json parse_bounded_json(std::string_view text);

// A parameter that is written bare: 4, true, Paris, {"k": 1}, {'k': None}. A text where the schema names texts and
// allows this one, or allows no other reading; null wins over the text "null" where both are allowed. Without a schema,
// what reads as a value that is no text is that value. `may_be_text`: false where the answer itself says that it is none.
Json argument_value(std::string_view raw, const ArgumentSchema& schema, bool may_be_text = true);

// Whether `raw` as a text is what the schema asks for.
bool is_declared_text(std::string_view raw, const ArgumentSchema& schema);

}  // namespace tessera::answer
