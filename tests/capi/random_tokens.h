// Tokens at random, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::serving_tests {

using Tokens = std::vector<int32_t>;

inline uint32_t next(uint32_t& seed) { return (seed = seed * 1664525u + 1013904223u) >> 8; }

inline Tokens random_tokens(uint32_t& seed, size_t count, uint32_t vocabulary) {
  Tokens tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(next(seed) % vocabulary);
  return tokens;
}

inline Tokens first(const Tokens& tokens, size_t count) {
  return Tokens(tokens.begin(), tokens.begin() + count);
}

}  // namespace tessera::serving_tests
