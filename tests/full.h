// Whether the long forms of tests run: `./dev test --full`, or TESSERA_TEST_FULL=1.
#pragma once

#include <cstdlib>
#include <string_view>

namespace tessera::test {

inline bool full() {
  const char* value = std::getenv("TESSERA_TEST_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace tessera::test
