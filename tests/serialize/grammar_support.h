// Vocabularies and random texts for tests of constrained output.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ok.h"
#include "text/grammar/constraint.h"
#include "text/grammar/grammar.h"

namespace tessera::grammar::testing {

using Random = std::mt19937;
inline size_t below(Random& random, size_t count) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(random);
}

// Token t is byte t; 256 ends the text.
inline std::shared_ptr<const TokenBytes> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  return test::ok(TokenBytes::create(std::move(tokens), {256}));
}

// All bytes, an end token, and `count` tokens of several bytes: pieces of JSON, words, and parts of characters.
inline std::shared_ptr<const TokenBytes> made_vocabulary(size_t count, uint32_t seed) {
  const std::vector<std::string> parts = {
      "\"", "{",        "}",   "[",  "]", ":", ",",   " ",    "\n",     "\\",  "a",    "b",
      "id", "name",     "1",   "0",  "-", ".", "e",   "true", "null",   "é",   "\xC3", "\xA9",
      "日", "\xE6\x97", "\\u", "00", "😀", "x", "the", "\": ", "\", \"", "\"}", "  "};
  Random random(seed);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  for (size_t i = 0; i < count; ++i) {
    std::string token;
    for (size_t k = 0, size = 1 + below(random, 5); k < size; ++k)
      token += parts[below(random, parts.size())];
    tokens.push_back(std::move(token));
  }
  return test::ok(TokenBytes::create(std::move(tokens), {256}));
}

inline std::vector<uint32_t> mask_of(const Constraint& constraint) {
  std::vector<uint32_t> mask(constraint.mask_words());
  const Status status = constraint.write_allowed(mask);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return mask;
}

inline std::vector<int32_t> ids_of(const std::vector<uint32_t>& mask) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < mask.size() * 32; ++i)
    if (mask[i / 32] >> (i % 32) & 1) ids.push_back(static_cast<int32_t>(i));
  return ids;
}

// Byte by byte: how many of them are allowed, and whether the text may end after them.
struct Outcome {
  size_t accepted = 0;
  bool can_end = false;
};
inline Outcome feed(Constraint constraint, std::string_view text) {
  Outcome outcome;
  for (const char each : text) {
    if (!constraint.accept(static_cast<uint8_t>(each)).ok()) return outcome;
    ++outcome.accepted;
  }
  outcome.can_end = constraint.can_end();
  return outcome;
}

// The texts that a grammar allows, by bytes.
class Matcher {
 public:
  explicit Matcher(Grammar::Shared grammar)
      : cache_(std::make_shared<MaskCache>(std::move(grammar), byte_vocabulary())) {}
  bool matches(std::string_view text) const {
    const Outcome outcome = feed(Constraint(cache_), text);
    return outcome.accepted == text.size() && outcome.can_end;
  }
  size_t accepted(std::string_view text) const { return feed(Constraint(cache_), text).accepted; }

 private:
  std::shared_ptr<MaskCache> cache_;
};

// Tokens at random among the allowed ones. After `most` of them, shorter ways to the end are tried: the end where it is
// allowed, else bytes that close something. Empty where the text does not end within 20 times as many.
inline std::string random_text(const std::shared_ptr<MaskCache>& cache, Random& random, size_t most) {
  Constraint constraint(cache);
  std::string text;
  for (size_t step = 0; step < 20 * most; ++step) {
    const auto mask = mask_of(constraint);
    const auto is_allowed = [&](int32_t id) {
      return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
    };
    const auto ids = ids_of(mask);
    REQUIRE(!ids.empty());
    int32_t id = ids[below(random, ids.size())];
    if (step >= most || below(random, 16) == 0) {
      for (const int32_t closing : {256, int32_t{'"'}, int32_t{'}'}, int32_t{']'}})
        if (is_allowed(closing)) {
          id = closing;
          break;
        }
    }
    const Status status = constraint.accept(id);
    REQUIRE_MESSAGE(status.ok(), status.to_string());
    if (constraint.has_ended()) return text;
    text += cache->tokens().bytes(id);
  }
  return {};
}

}  // namespace tessera::grammar::testing
