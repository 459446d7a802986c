// The number that stands behind some words of a message.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::test {

inline int64_t number_after(const std::string& message, std::string_view words) {
  const size_t at = message.find(words);
  REQUIRE(at != std::string::npos);
  return std::stoll(message.substr(at + words.size()));
}

}  // namespace tessera::test
