// Quotes: texts of callers and files, which may be megabytes long, shortened for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Returns `text`, or for one above `most` bytes its beginning and end around "… [N bytes]
// …": a remedy comes last, and stays. At least 64 bytes; characters of UTF-8 stay whole.
std::string quote(std::string_view text, size_t most = 200);

}  // namespace tessera
