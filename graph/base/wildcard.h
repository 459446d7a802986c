// Wildcard patterns: '*' matches any characters, none included; every other character matches itself.
#pragma once

#include <string_view>

namespace tessera {

// Returns whether `pattern` matches all of `name`. Takes at most their lengths' product: names come from files.
bool matches_wildcard(std::string_view pattern, std::string_view name);

}  // namespace tessera
