// Quotes: text from outside, which may be megabytes long, shortened for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// `text`, or where it is longer than `most` bytes its beginning and its end with "… [N bytes] …" between
// them: a remedy comes last, and stays. At least 64 bytes; characters of UTF-8 stay whole.
std::string quote(std::string_view text, size_t most = 200);

}  // namespace tessera
