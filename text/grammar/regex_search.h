// Searches a text for a regular expression, as a schema's "pattern" does.
#pragma once

#include <optional>
#include <string_view>

namespace tessera::grammar {

// Whether some part of `text` matches. nullopt for an expression that
// read_regex refuses, or that is too ambiguous. Linear in the text.
std::optional<bool> contains_regex(std::string_view text, std::string_view pattern);

}  // namespace tessera::grammar
