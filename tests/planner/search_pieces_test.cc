// The pieces of the search against exhaustive enumeration.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "parallel/search/frontier.h"
#include "parallel/search/pipeline_cuts.h"
#include "parallel/search/repeated_blocks.h"

using namespace tessera;

namespace {

// Slower choices need less memory, with some that are dominated.
std::vector<BlockChoice> random_choices(std::mt19937& random, int count, bool transients) {
  std::uniform_int_distribution<int64_t> bytes(1 << 20, 1 << 30);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  std::vector<BlockChoice> choices;
  for (int i = 0; i < count; ++i) {
    const int64_t size = bytes(random);
    const double time = noise(random) / std::sqrt(static_cast<double>(size) / (1 << 20));
    choices.push_back({time, size, transients ? (int64_t{1} << 20) * static_cast<int64_t>(random() % 3) : 0});
  }
  return choices;
}

int64_t random_budget(std::mt19937& random, const std::vector<BlockChoice>& choices, int64_t blocks) {
  int64_t low = INT64_MAX, high = 0;
  for (const BlockChoice& choice : choices)
    low = std::min(low, choice.bytes), high = std::max(high, choice.bytes + choice.transient_bytes);
  return blocks * low + static_cast<int64_t>(std::uniform_real_distribution<double>(-0.02, 1.02)(random) *
                                             static_cast<double>(blocks * (high - low)));
}

void enumerate(std::span<const BlockChoice> choices, size_t at, int64_t left, double time, int64_t bytes,
               int64_t transient, int64_t budget, double& best) {
  if (left == 0) {
    if (bytes + transient <= budget) best = std::min(best, time);
    return;
  }
  if (at == choices.size()) return;
  for (int64_t n = 0; n <= left; ++n)
    enumerate(choices, at + 1, left - n, time + static_cast<double>(n) * choices[at].time_s,
              bytes + n * choices[at].bytes,
              n > 0 ? std::max(transient, choices[at].transient_bytes) : transient, budget, best);
}

// The fastest cut: for every pace that a stage may have, the least sum of what stages take once.
double least_step(int64_t blocks, int32_t stages, const EqualStageCost& cost) {
  const auto n = static_cast<size_t>(blocks), count = static_cast<size_t>(stages);
  std::vector<std::vector<StagePrice>> prices(count, std::vector<StagePrice>(n + 1));
  std::set<double> paces;
  for (size_t s = 0; s < count; ++s)
    for (size_t k = 1; k <= n; ++k) {
      prices[s][k] = cost(static_cast<int32_t>(s), static_cast<int64_t>(k));
      if (std::isfinite(prices[s][k].pace_s)) paces.insert(prices[s][k].pace_s);
    }
  double best = INFINITY;
  for (const double pace : paces) {
    std::vector<double> sums(n + 1, INFINITY);
    sums[0] = 0;
    for (size_t s = 0; s < count; ++s) {
      std::vector<double> next(n + 1, INFINITY);
      for (size_t begin = 0; begin < n; ++begin)
        for (size_t k = 1; begin + k <= n; ++k)
          if (prices[s][k].pace_s <= pace)
            next[begin + k] = std::min(next[begin + k], sums[begin] + prices[s][k].once_s);
      sums = next;
    }
    best = std::min(best, sums[n] + pace);
  }
  return best;
}

}  // namespace

TEST_CASE("frontiers drop what is dominated") {
  const Frontier f = frontier({{3, 1, 0}, {2, 2, 1}, {2, 3, 2}, {1, 5, 3}, {3, 1, 4}});
  CHECK(f == Frontier{{3, 1, 0}, {2, 2, 1}, {1, 5, 3}});
}

TEST_CASE("repeated blocks equal exhaustive enumeration, transients included") {
  std::mt19937 random(3);
  int feasible = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t blocks = 1 + static_cast<int64_t>(random() % 9);
    const auto choices = random_choices(random, 1 + static_cast<int>(random() % 5), trial % 2 == 1);
    const int64_t budget = random_budget(random, choices, blocks);
    double best = INFINITY;
    enumerate(choices, 0, blocks, 0, 0, 0, budget, best);
    const auto found = solve_repeated_blocks(choices, blocks, budget);
    REQUIRE(found.ok() == std::isfinite(best));
    if (!found.ok()) {
      CHECK(found.status().code() == StatusCode::kOutOfMemory);
      continue;
    }
    ++feasible;
    CHECK(found->time_s == doctest::Approx(best).epsilon(1e-11));
    CHECK(found->proved);
    int64_t bytes = 0, transient = 0, count = 0;
    for (size_t s = 0; s < choices.size(); ++s) {
      bytes += found->counts[s] * choices[s].bytes;
      count += found->counts[s];
      if (found->counts[s] > 0) transient = std::max(transient, choices[s].transient_bytes);
    }
    CHECK(count == blocks);
    CHECK(bytes + transient == found->bytes);
    CHECK(found->bytes <= budget);
  }
  CHECK(feasible > 300);
}

TEST_CASE("repeated blocks: 2,400 instances of up to 40 choices and 96 blocks are all proved") {
  std::mt19937 random(4);
  int proved = 0, solved = 0;
  for (const int choices_most : {8, 16, 24, 40})
    for (const int64_t blocks : {12, 24, 96})
      for (int trial = 0; trial < 200; ++trial) {
        const auto choices = random_choices(random, choices_most, false);
        const int64_t budget = random_budget(random, choices, blocks);
        const auto found = solve_repeated_blocks(choices, blocks, budget);
        if (!found.ok()) continue;
        ++solved;
        proved += found->proved;
        CHECK(found->bytes <= budget);
        CHECK(found->bound_s <= found->time_s);
      }
  CHECK(proved == solved);
  CHECK(solved > 2200);
}

TEST_CASE("per-block sharding by operator: three published optima") {
  struct Fixture {
    int64_t blocks, limit_mb;
    std::vector<BlockChoice> choices;  // sharded: none, attention, feed-forward, both
    double time_s;
    std::vector<int64_t> counts;
    int64_t used_mb;
    double against_all;
  };
  const Fixture fixtures[] = {
      {48,
       8192,
       {{.022743, 169, 0}, {.026183, 120, 0}, {.028020, 80, 0}, {.032952, 62, 0}},
       1.1355,
       {39, 2, 7, 0},
       7391,
       1.393},
      {48,
       8192,
       {{.051672, 377, 0}, {.054875, 271, 0}, {.060700, 147, 0}, {.069794, 116, 0}},
       2.9019,
       {0, 2, 46, 0},
       7304,
       1.154},
      {2,
       16384,
       {{1.44134, 10752, 0}, {1.50902, 7680, 0}, {1.67959, 3584, 0}, {1.92036, 1833, 0}},
       3.0180,
       {0, 2, 0, 0},
       15360,
       1.273},
  };
  for (const Fixture& fixture : fixtures) {
    const auto found = solve_repeated_blocks(fixture.choices, fixture.blocks, fixture.limit_mb - 800);
    REQUIRE(found.ok());
    CHECK(std::abs(found->time_s - fixture.time_s) < 6e-5);
    CHECK(found->counts == fixture.counts);
    CHECK(found->bytes == fixture.used_mb);
    const double all = static_cast<double>(fixture.blocks) * fixture.choices[3].time_s;
    CHECK(std::abs(all / found->time_s - fixture.against_all) < 6e-4);
  }
}

TEST_CASE("stages alike are cut with as many prices whatever the depth") {
  // Eight stages, with an embedding on the first and a head on the last.
  const auto asked = [](int64_t blocks) {
    int64_t prices = 0;
    const auto seconds = [&](int32_t s, int64_t n) {
      const double share = static_cast<double>(n) / static_cast<double>(blocks);
      return share + (s == 0 ? 0.01 : s == 7 ? 0.02 : 0);
    };
    const EqualStageCost cost = [&](int32_t s, int64_t n) {
      ++prices;
      return StagePrice{seconds(s, n), 15 * seconds(s, n)};
    };
    const StageFloor floor = [&](int32_t s, int64_t n) { return 16 * seconds(s, n) + 0.9; };
    const auto cuts = cut_growing_blocks(blocks, 8, cost, floor, INFINITY);
    REQUIRE(cuts.ok());
    CHECK(cuts->solved <= 8);
    return prices;
  };
  CHECK(asked(100) <= 8 * 8);
  CHECK(asked(10'000) <= 8 * 8);
}

TEST_CASE("where more blocks take no less, few prices decide the same cut") {
  std::mt19937 random(11);
  int closed = 0, infeasible = 0, paced = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const auto blocks = static_cast<int64_t>(4 + random() % 24);
    const auto stages = static_cast<int32_t>(1 + random() % std::min<int64_t>(blocks, 7));
    const double m = static_cast<double>(1 + random() % 20);
    std::vector<double> own;
    std::vector<int64_t> keeps;
    for (int32_t s = 0; s < stages; ++s) {
      own.push_back(static_cast<double>(random() % 5));
      keeps.push_back(static_cast<int64_t>(random() % 12));
    }
    const auto limit = static_cast<int64_t>(2 + random() % 20);
    const auto seconds = [&](int32_t s, int64_t n) {
      const auto i = static_cast<size_t>(s);
      return own[i] + static_cast<double>(n) + 0.3 * static_cast<double>(std::max<int64_t>(0, n - keeps[i]));
    };
    const EqualStageCost cost = [&](int32_t s, int64_t n) {
      if (n > limit) return StagePrice{INFINITY, INFINITY};
      return StagePrice{seconds(s, n), (m - 1) * seconds(s, n)};
    };
    const StageFloor floor = [&](int32_t s, int64_t n) { return n > limit ? INFINITY : m * seconds(s, n); };
    const double least_s = least_step(blocks, stages, cost);
    const auto growing = cut_growing_blocks(blocks, stages, cost, floor, INFINITY);
    REQUIRE(growing.ok() == std::isfinite(least_s));
    infeasible += !growing.ok();
    if (!growing.ok()) continue;
    // The same sums, in another order at most.
    CHECK(growing->time_s == doctest::Approx(least_s).epsilon(1e-12));
    const auto below = cut_growing_blocks(blocks, stages, cost, floor, 1.001 * least_s);
    REQUIRE(below.ok());
    CHECK(below->time_s == doctest::Approx(least_s).epsilon(1e-12));
    const auto none = cut_growing_blocks(blocks, stages, cost, floor, 0.999 * least_s);
    REQUIRE(none.ok());
    CHECK(none->first.empty());
    CHECK(none->time_s == 0.999 * least_s);
    ++closed;
    // Where only the slowest stage counts, and stages have more than one block.
    const auto least = static_cast<int64_t>(1 + random() % 3);
    const EqualStageCost alone = [&](int32_t s, int64_t n) {
      return n < least ? StagePrice{INFINITY, INFINITY} : StagePrice{0, floor(s, n)};
    };
    const auto as_before = [&](int32_t s) {
      const auto i = static_cast<size_t>(s);
      return own[i] == own[i - 1] && keeps[i] == keeps[i - 1];
    };
    const double slowest_s = least_step(blocks, stages, alone);
    const auto pace = cut_to_least_pace(blocks, stages, least, floor, INFINITY, as_before);
    REQUIRE(pace.ok() == std::isfinite(slowest_s));
    paced += pace.ok();
    if (!pace.ok()) continue;
    CHECK(pace->time_s == slowest_s);
    double longest = 0;
    for (size_t s = 0; s < pace->first.size(); ++s) {
      const int64_t n = (s + 1 < pace->first.size() ? pace->first[s + 1] : blocks) - pace->first[s];
      CHECK(n >= least);
      longest = std::max(longest, floor(static_cast<int32_t>(s), n));
    }
    CHECK(longest == pace->time_s);
    const auto faster = cut_to_least_pace(blocks, stages, least, floor, pace->time_s, as_before);
    CHECK((faster.ok() && faster->first.empty()));
  }
  CHECK(closed > 100);
  CHECK(infeasible > 10);
  CHECK(paced > 100);
}
