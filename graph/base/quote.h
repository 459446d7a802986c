// Quotes: texts of callers and files, which may be megabytes long, shortened for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Returns `text`; if it is longer than `most` bytes (at least 64), its beginning and end around "... [N bytes] ...". The end
// is kept because messages end with the remedy. Characters of UTF-8 stay whole.
std::string quote(std::string_view text, size_t most = 200);

}  // namespace tessera
