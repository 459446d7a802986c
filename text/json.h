// JSON of users' files: every text from outside is read here, within bounds of size and depth. Deep values
// would overflow the stack, since they are printed and compared by recursion.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

using Json = nlohmann::ordered_json;

inline constexpr int kMostJsonDepth = 64;
inline constexpr size_t kMostJsonBytes = size_t{64} << 20;

// kCorrupt, beginning with `what` it is, for text that is not JSON, nests deeper, or is longer.
Result<Json> parse_json(std::string_view text, std::string_view what, size_t most_bytes = kMostJsonBytes);

// One line; bytes that are not UTF-8 (a name in a hostile file) become U+FFFD instead of an exception.
std::string dump(const Json& value);

// The beginning and the end of a value, for messages.
std::string quote_json(const Json& value, size_t most = 200);

}  // namespace tessera
