#include "parallel/search/convex_floor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

using namespace tessera;

namespace {

// Grows by 1 or more a step, by much more at times.
std::vector<double> growing(std::mt19937& random, int64_t count) {
  std::vector<double> values = {std::uniform_real_distribution<>(0, 5)(random)};
  std::uniform_real_distribution<> extra(0, 1);
  while (static_cast<int64_t>(values.size()) <= count)
    values.push_back(values.back() + 1 + (extra(random) < 0.2 ? 9 * extra(random) : 0));
  return values;
}

TEST_CASE("a convex floor is convex, and above no value of the function, known or not") {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    const int64_t count = 40;
    const std::vector<double> values = growing(random, count);
    std::vector<KnownValue> known;
    for (int64_t at = 0; at < count; at += 1 + static_cast<int64_t>(random() % 12))
      known.push_back({at, values[static_cast<size_t>(at)]});
    known.push_back({count, values.back()});
    const ConvexFloor floor(known, 1);
    for (int64_t at = 0; at <= count; ++at)
      CHECK(floor(static_cast<double>(at)) <= values[static_cast<size_t>(at)] + 1e-12);
    for (double at = 0.5; at + 1 <= count; at += 0.5)
      CHECK(floor(at - 0.5) + floor(at + 0.5) >= 2 * floor(at) - 1e-9);
    CHECK(floor(0) == doctest::Approx(values[0]));
    CHECK(floor.steepest() >= floor(1) - floor(0) - 1e-9);
  }
}

TEST_CASE("a convex floor of a convex function whose values are all known is the function") {
  std::vector<KnownValue> known;
  for (int64_t at = 0; at < 10; ++at) known.push_back({at, static_cast<double>(at * at)});
  const ConvexFloor floor(known, 0);
  for (const KnownValue& one : known) CHECK(floor(static_cast<double>(one.at)) == doctest::Approx(one.value));
  CHECK(floor.steepest() == doctest::Approx(17));
}

TEST_CASE("one known value is all a convex floor needs") {
  const std::vector<KnownValue> known = {{3, 2.5}};
  const ConvexFloor floor(known, 1);
  CHECK(floor(3) == 2.5);
  CHECK(floor.steepest() == 0);
}

}  // namespace
