// HTML pages with their data inside, as JSON.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// The page with `json` in place of the only `placeholder`. Every '<' is escaped: "</script" in a name would end the
// element.
std::string fill_page(std::string_view page, std::string_view placeholder, std::string_view json);

}  // namespace tessera
