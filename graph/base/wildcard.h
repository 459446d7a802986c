// Wildcard patterns: '*' stands for any characters, none included; every other character for itself.
#pragma once

#include <string_view>

namespace tessera {

// Whether `pattern` describes all of `name`. Takes at most their lengths' product: names come from files.
bool matches_wildcard(std::string_view pattern, std::string_view name);

}  // namespace tessera
