// Parses untrusted JSON, limiting its size and nesting
// depth, since printing and comparing recurse over the depth.
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

// kCorrupt, beginning with `what`, for invalid JSON and exceeded bounds.
Result<Json> parse_json(std::string_view text, std::string_view what, size_t most_bytes = kMostJsonBytes);

// One line; invalid UTF-8 (a name in a hostile file) becomes U+FFFD instead of an exception.
std::string dump(const Json& value);

// The value as JSON for messages; if longer than `most` bytes, only its start and end.
std::string quote_json(const Json& value, size_t most = 200);

}  // namespace tessera
