// Wildcard patterns against a table of all prefixes, and names that made backtracking take years.
#include "graph/base/wildcard.h"

#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

using namespace tessera;

namespace {

// reached[n]: the pattern so far describes the first n characters of the name.
bool matches_by_table(const std::string& pattern, const std::string& name) {
  std::vector<bool> reached(name.size() + 1, false);
  reached[0] = true;
  for (const char c : pattern) {
    std::vector<bool> next(name.size() + 1, false);
    for (size_t n = 0; n <= name.size(); ++n)
      next[n] = c == '*' ? reached[n] || (n > 0 && next[n - 1]) : n > 0 && reached[n - 1] && name[n - 1] == c;
    reached = next;
  }
  return reached[name.size()];
}

}  // namespace

TEST_CASE("a star stands for any characters, none included") {
  CHECK(matches_wildcard("block.*.fc.weight", "block.3.fc.weight"));
  CHECK(matches_wildcard("block.*", "block.3.fc.weight"));
  CHECK(matches_wildcard("*weight", "block.3.fc.weight"));
  CHECK(matches_wildcard("*", ""));
  CHECK_FALSE(matches_wildcard("block.*.fc.weight", "block.3.fc.bias"));
  CHECK_FALSE(matches_wildcard("block.3", "block.31"));
  CHECK_FALSE(matches_wildcard("", "a"));
}

TEST_CASE("random patterns match what a table of all prefixes says") {
  std::mt19937 random(1);
  const auto text = [&](std::string_view letters, size_t most) {
    std::string made(random() % (most + 1), ' ');
    for (char& c : made) c = letters[random() % letters.size()];
    return made;
  };
  int matched = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string pattern = text("ab**", 8), name = text("ab", 8);
    CAPTURE(pattern);
    CAPTURE(name);
    const bool wanted = matches_by_table(pattern, name);
    REQUIRE(matches_wildcard(pattern, name) == wanted);
    matched += wanted;
  }
  CHECK(matched > 200);
}

TEST_CASE("many stars over long names take no time") {
  std::string pattern;
  for (int star = 0; star < 1000; ++star) pattern += "*a";
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(matches_wildcard(pattern + "b", std::string(20000, 'a')));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}
