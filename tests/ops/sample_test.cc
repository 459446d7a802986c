// Sampling: greedy, cut by top_k and top_p, repeatable, and true to the distribution.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/ops/host_values.h"
#include "tests/ops/kernel_runner.h"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Options {
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1;
  int64_t seed = 0;
};

// One token for each row of logits [B, V]; all rows stand at position start + 1.
std::vector<int32_t> sample(const std::vector<float>& logits, int64_t B, const Options& options,
                            int32_t start = 0, const std::vector<FactorView>& factors = {}) {
  const int64_t V = static_cast<int64_t>(logits.size()) / B;
  const std::vector<int32_t> starts(static_cast<size_t>(B), start), lengths(static_cast<size_t>(B), 1);
  const auto out =
      run_kernel({"sample",
                  {f32({B, V}, logits), f32({}, {options.temperature}), i32({}, {options.top_k}),
                   f32({}, {options.top_p}), i64({}, {options.seed}), i32({B}, starts), i32({B}, lengths)},
                  {},
                  factors});
  REQUIRE_MESSAGE(out.ok(), out.status().to_string());
  const auto tokens = (*out)[0].as<int32_t>();
  return {tokens.begin(), tokens.end()};
}

// How often each token comes in `draws` positions.
std::map<int32_t, double> frequencies(const std::vector<float>& logits, const Options& options, int draws) {
  std::map<int32_t, double> counts;
  for (int32_t start = 0; start < draws; ++start) counts[sample(logits, 1, options, start)[0]] += 1.0 / draws;
  return counts;
}

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

}  // namespace

TEST_CASE("temperature 0 takes the largest logit, the lowest token on a tie") {
  CHECK(sample({1, 5, 5, 2, -1, -3, -1, -2}, 2, {.temperature = 0}) == std::vector<int32_t>{1, 0});
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  CHECK(sample({nan, -inf, 3, 2}, 1, {.temperature = 0}) == std::vector<int32_t>{2});
}

TEST_CASE("tokens come as often as their probability says") {
  const auto f = frequencies(kLogits, {}, 20000);
  // Three standard deviations of 20000 draws are at most 0.0107.
  for (auto [token, p] : std::map<int32_t, double>{{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}})
    CHECK(std::abs(f.at(token) - p) < 0.011);
}

TEST_CASE("a temperature of 2 flattens the distribution by the square root") {
  const auto f = frequencies(kLogits, {.temperature = 2}, 20000);
  const double total = std::sqrt(0.1) + std::sqrt(0.4) + std::sqrt(0.2) + std::sqrt(0.3);
  CHECK(std::abs(f.at(0) - std::sqrt(0.1) / total) < 0.011);
  CHECK(std::abs(f.at(1) - std::sqrt(0.4) / total) < 0.011);
}

TEST_CASE("top_k keeps the k likeliest tokens in proportion") {
  const auto f = frequencies(kLogits, {.top_k = 2}, 20000);
  CHECK(f.size() == 2);
  CHECK(std::abs(f.at(1) - 4.0 / 7) < 0.011);
  CHECK(frequencies(kLogits, {.top_k = 1}, 100).size() == 1);
  CHECK(sample({2, 2, 2, 2}, 1, {.top_k = 1}) == std::vector<int32_t>{0});
}

TEST_CASE("top_p keeps the shortest head that reaches it") {
  CHECK(frequencies(kLogits, {.top_p = 0.35f}, 1000).size() == 1);
  CHECK(frequencies(kLogits, {.top_p = 0.65f}, 1000).size() == 2);
  const auto f = frequencies(kLogits, {.top_p = 0.75f}, 20000);
  CHECK(f.size() == 3);
  CHECK(std::abs(f.at(2) - 0.2 / 0.9) < 0.011);
  CHECK(frequencies(kLogits, {.top_p = 0}, 100).size() == 1);
}

TEST_CASE("a token depends on seed, position and sequence alone") {
  const std::vector<float> flat(64, 0.0f);
  std::vector<float> rows;
  for (int row = 0; row < 4; ++row) rows.insert(rows.end(), flat.begin(), flat.end());
  const auto four = sample(rows, 4, {.seed = 7}, 11);
  CHECK(four == sample(rows, 4, {.seed = 7}, 11));
  CHECK(four != sample(rows, 4, {.seed = 8}, 11));
  CHECK(four != sample(rows, 4, {.seed = 7}, 12));
  CHECK(std::map<int32_t, int>{{four[0], 0}, {four[1], 0}, {four[2], 0}, {four[3], 0}}.size() > 1);
  // Sequences 2 and 3 of 4 on a shard of their own.
  const FactorView b{'b', 4, 1, 1, {2, 0}, {4, 0}};
  rows.resize(2 * 64);
  CHECK(sample(rows, 2, {.seed = 7}, 11, {b}) == std::vector<int32_t>{four[2], four[3]});
}

TEST_CASE("logits that are not finite never give a token that has no probability") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (int32_t start = 0; start < 200; ++start) {
    CHECK(sample({nan, 1, -inf, 1}, 1, {.top_p = 0.9f}, start)[0] % 2 == 1);
    CHECK(sample({nan, 1, -inf, 1}, 1, {.temperature = inf}, start)[0] % 2 == 1);
  }
  CHECK(sample({nan, nan, nan}, 1, {}) == std::vector<int32_t>{0});
  CHECK(sample({-inf, inf, 3}, 1, {}) == std::vector<int32_t>{1});
}
