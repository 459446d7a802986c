// HTML pages with embedded JSON data.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Replaces the only `placeholder` by `json`. Escapes every
// '<', since "</script" in a name would end the element.
std::string fill_page(std::string_view page, std::string_view placeholder, std::string_view json);

}  // namespace tessera
