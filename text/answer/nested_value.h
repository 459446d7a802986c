// Values with parts written like parameters: <where><zip>75001</zip></where>, <at><item>1</item></at>.
#pragma once

#include <optional>
#include <string_view>

#include "text/answer/argument_schema.h"
#include "text/answer/form.h"
#include "text/json.h"

namespace tessera::answer {

// An array if all parts are called "item", else an object. nullopt
// for a text without such parts. `schema`: the whole value's.
std::optional<Json> parse_nested_value(std::string_view text, const ParameterForm& form,
                                       const ArgumentSchema& schema, int depth = 0);

}  // namespace tessera::answer
