// Sampling: greedy, cut by top_k and top_p, repeatable, and true to the distribution.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "graph/base/philox.h"
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

// The definition: the whole vocabulary sorted, cut to top_k, then to top_p, and one uniform number.
int32_t by_sorting(const std::vector<float>& logits, const Options& options, int32_t start) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t token) {
    const float value = logits[static_cast<size_t>(token)];
    return std::isnan(value) ? -std::numeric_limits<double>::infinity() : double(value);
  };
  const double top = logit(*std::max_element(order.begin(), order.end(),
                                             [&](int32_t a, int32_t b) { return logit(a) < logit(b); }));
  const bool is_cut = options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size();
  if (is_cut || options.top_p < 1)
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (is_cut) order.resize(static_cast<size_t>(options.top_k));
  const auto weight = [&](int32_t token) { return std::exp((logit(token) - top) / options.temperature); };
  double total = 0, head = 0;
  for (const int32_t token : order) total += weight(token);
  size_t count = 0;
  while (count < order.size() && (count == 0 || head < options.top_p * total)) head += weight(order[count++]);
  if (options.top_p >= 1) std::tie(count, head) = std::tuple(order.size(), total);
  const auto bits = philox_bits(static_cast<uint64_t>(options.seed), static_cast<uint64_t>(start) + 1, 0);
  double left = uniform_from_bits(bits[0], bits[1]) * head;
  for (size_t i = 0; i < count; ++i)
    if ((left -= weight(order[i])) < 0) return order[i];
  return order[count - 1];
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

TEST_CASE("selection draws the tokens that sorting the vocabulary draws") {
  constexpr int64_t kTokens = 5000;
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> rows(5);
  for (const double value : scattered(kTokens, 4)) {
    rows[0].push_back(static_cast<float>(value));                        // flat
    rows[1].push_back(static_cast<float>(8 * value * value * value));    // a few that are likely
    rows[2].push_back(std::round(static_cast<float>(4 * value)));        // many ties
    rows[3].push_back(value > 0.9 ? static_cast<float>(value) : -1e9f);  // masked
    rows[4].push_back(value > 0.99 ? static_cast<float>(value) : -inf);
  }
  rows[1][7] = std::numeric_limits<float>::quiet_NaN();
  rows[1][4999] = 12;
  for (size_t row = 0; row < rows.size(); ++row)
    for (const float temperature : {0.05f, 0.8f, 30.0f})
      for (const auto& [top_k, top_p] :
           {std::tuple(0, 0.0f), std::tuple(0, 0.1f), std::tuple(0, 0.9f), std::tuple(0, 0.999999f),
            std::tuple(0, 1.0f), std::tuple(1, 1.0f), std::tuple(40, 1.0f), std::tuple(40, 0.5f),
            std::tuple(4999, 0.9f), std::tuple(5000, 1.0f)})
        for (int32_t start = 0; start < 4; ++start) {
          const Options options{temperature, top_k, top_p, 5};
          CAPTURE(row);
          CAPTURE(temperature);
          CAPTURE(top_k);
          CAPTURE(top_p);
          CHECK(sample(rows[row], 1, options, start)[0] == by_sorting(rows[row], options, start));
        }
}
