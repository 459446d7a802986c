// The best-first search that all planners use, over numbers: a part is a range of integers, its cost a function of one.
#include "parallel/planner/best_first.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

struct Range {
  int low = 0, high = 0;  // the half-open range [low, high)
};

double cost_of(int n) { return std::abs(n - 37) + 5; }

// Halves ranges; the bound of a range is the least cost within it, times `optimism`.
struct Halving {
  static constexpr bool kByBound = true;
  OpenParts<Range> open;
  BoundTrust trust;
  double optimism = 1, best = INFINITY;
  int evaluated = 0, most = 1000;
  size_t together = 1, prepared = 0;

  void push(Range it) {
    double least = INFINITY;
    for (int n = it.low; n < it.high; ++n) least = std::min(least, cost_of(n));
    open.push(it, optimism * least);
  }
  Result<bool> may_continue() { return evaluated < most; }
  bool is_closed(const OpenPart<Range>& it) const { return it.bound * trust.factor >= best; }
  size_t at_once() const { return together; }
  void prepare(const std::vector<OpenPart<Range>>& parts) { prepared += parts.size(); }
  void evaluate(const OpenPart<Range>& it) {
    const auto [low, high] = it.part;
    if (high - low > 1) {
      push({low, (low + high) / 2}), push({(low + high) / 2, high});
      return;
    }
    ++evaluated;
    trust.observe(it.bound, cost_of(low));
    best = std::min(best, cost_of(low));
  }
};

double search(Halving& it) {
  it.push({0, 100});
  std::vector<OpenPart<Range>> closed;
  REQUIRE(search_best_first(it, it.open, closed).ok());
  return it.best;
}

}  // namespace

TEST_CASE("with exact bounds the best-first search evaluates the best part alone, and the rest stays closed") {
  Halving it;
  CHECK(search(it) == 5);
  CHECK(it.evaluated == 1);
  REQUIRE(!it.open.empty());
  CHECK(it.open.next().bound >= 5);
}

TEST_CASE("with lower bounds the best-first search proves what it finds, however many parts are prepared together") {
  for (const size_t together : {1, 3, 4}) {
    Halving it;
    it.optimism = 0.7, it.together = together;
    CHECK(search(it) == 5);
    CHECK(it.evaluated > 1);
    CHECK(it.prepared >= static_cast<size_t>(it.evaluated));
    for (const OpenPart<Range>& left : it.open.all()) CHECK(left.bound >= 5);
  }
}

TEST_CASE("a bound above a cost lowers the trust in all bounds, so that the search goes on") {
  Halving it;
  it.optimism = 1.5;
  CHECK(search(it) == 5);
  CHECK(it.trust.factor == doctest::Approx(1 / 1.5));
}

TEST_CASE("the best-first search ends where its budget is spent, and equal ranks come in the order they were opened") {
  Halving it;
  it.optimism = 0, it.most = 2;
  CHECK(search(it) == cost_of(3));  // all bounds are 0, so breadth first: [0, 1) and [3, 4) are the first single numbers
  CHECK(it.evaluated == 2);
  CHECK(!it.open.empty());
}
