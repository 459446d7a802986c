// JSON for the engine's .cc files; no other header includes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {

using Json = nlohmann::ordered_json;

// One line; bytes that are not UTF-8 (a name in a hostile file) become U+FFFD instead of an exception.
inline std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
