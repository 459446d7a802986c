#include "parallel/search/recompute.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace tessera;

namespace {

std::vector<Activation> random_chain(std::mt19937& random, size_t length) {
  std::vector<double> seconds;
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < length; ++i) {
    seconds.push_back(1 + static_cast<double>(random() % 1000) / 100);
    bytes.push_back(1000 + static_cast<int64_t>(random() % 100000));
  }
  return activation_chain(seconds, bytes);
}

std::vector<Activation> random_graph(std::mt19937& random, size_t size) {
  std::vector<Activation> values = random_chain(random, size);
  for (size_t i = 1; i < size; ++i) {
    values[i].inputs.clear();
    const size_t inputs = 1 + random() % 3;
    for (size_t k = 0; k < inputs; ++k) {
      const auto input = static_cast<int32_t>(i - 1 - random() % std::min<size_t>(i, 6));
      if (std::ranges::find(values[i].inputs, input) == values[i].inputs.end())
        values[i].inputs.push_back(input);
    }
  }
  return values;
}

int64_t total_bytes(const std::vector<Activation>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0},
                         [](int64_t sum, const Activation& value) { return sum + value.bytes; });
}

}  // namespace

TEST_CASE("recomputing a chain: the peak is what is kept before a segment and the segment itself") {
  const std::vector<double> seconds = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> bytes = {10, 20, 30, 40, 50, 60};
  const auto chain = activation_chain(seconds, bytes);
  const RecomputeSet all = evaluate_recompute(chain, std::vector<bool>(6, true));
  CHECK(all.peak_bytes == 210);
  CHECK(all.seconds == 0);
  // Kept: 1 and 3. Backward holds {20, 40, 50, 60}, then {20, 30, 40}, then {10, 20}.
  const RecomputeSet two = evaluate_recompute(chain, {false, true, false, true, false, false});
  CHECK(two.peak_bytes == 170);
  CHECK(two.seconds == 1 + 3 + 5 + 6);
  const RecomputeSet none = evaluate_recompute(chain, std::vector<bool>(6, false));
  CHECK(none.peak_bytes == 210);
  CHECK(none.seconds == 21);
}

TEST_CASE("recomputation of chains up to 10 equals exhaustive enumeration") {
  std::mt19937 random(1);
  int infeasible = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const size_t length = 1 + random() % 10;
    const auto chain = random_chain(random, length);
    const auto budget = static_cast<int64_t>(static_cast<double>(total_bytes(chain)) *
                                             std::uniform_real_distribution<double>(0.2, 1.05)(random));
    double best = INFINITY;
    int64_t least = INT64_MAX;
    for (uint32_t bits = 0; bits < (1u << length); ++bits) {
      std::vector<bool> kept(length);
      for (size_t i = 0; i < length; ++i) kept[i] = (bits >> i & 1) != 0;
      const RecomputeSet set = evaluate_recompute(chain, kept);
      least = std::min(least, set.peak_bytes);
      if (set.peak_bytes <= budget) best = std::min(best, set.seconds);
    }
    const auto found = choose_recompute(chain, budget);
    REQUIRE(found.ok() == std::isfinite(best));
    if (!found.ok()) {
      ++infeasible;
      CHECK(found.status().code() == StatusCode::kOutOfMemory);
      CHECK(std::string(found.status().message()).find(std::to_string(least) + " bytes)") !=
            std::string::npos);
      CHECK(choose_recompute(chain, least).ok());
      CHECK(!choose_recompute(chain, least - 1).ok());
      continue;
    }
    CHECK(found->seconds == doctest::Approx(best).epsilon(1e-12));
    CHECK(found->peak_bytes <= budget);
    CHECK(found->proved);
  }
  CHECK(infeasible > 10);
  CHECK(infeasible < 200);
}

TEST_CASE("recomputation is never over budget on 200 random graphs and limits, and says what would fit") {
  std::mt19937 random(2);
  int solved = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto graph = random_graph(random, 2 + random() % 30);
    const auto budget = static_cast<int64_t>(static_cast<double>(total_bytes(graph)) *
                                             std::uniform_real_distribution<double>(0.3, 1.1)(random));
    const auto found = choose_recompute(graph, budget);
    if (!found.ok()) {
      CHECK(found.status().code() == StatusCode::kOutOfMemory);
      continue;
    }
    ++solved;
    CHECK(found->peak_bytes <= budget);
    const RecomputeSet again = evaluate_recompute(graph, found->kept);
    CHECK(again.peak_bytes == found->peak_bytes);
    CHECK(again.seconds == doctest::Approx(found->seconds));
  }
  CHECK(solved > 100);
}

TEST_CASE("more memory never means more recomputation, and all of it means none") {
  std::mt19937 random(3);
  const auto chain = random_chain(random, 60);
  const int64_t all = total_bytes(chain);
  double last = INFINITY;
  int settings = 0;
  for (int percent = 20; percent <= 100; percent += 5) {
    const auto found = choose_recompute(chain, all * percent / 100);
    if (!found.ok()) continue;
    ++settings;
    if (found->proved) CHECK(found->seconds <= last * (1 + 1e-12));
    last = found->seconds;
  }
  CHECK(settings > 10);
  CHECK(last == 0);
}

TEST_CASE("a chain of 200 values is solved within its budget") {
  std::mt19937 random(4);
  const auto chain = random_chain(random, 200);
  for (const int percent : {25, 50, 75}) {
    const int64_t budget = total_bytes(chain) * percent / 100;
    const auto found = choose_recompute(chain, budget);
    REQUIRE(found.ok());
    MESSAGE(percent, " % of the memory: ", found->seconds, " s again, ",
            std::string(found->proved ? "proved" : "not proved"));
    CHECK(found->peak_bytes <= budget);
  }
}

// DenseNet-121's four parts of 6, 12, 24 and 16 pairs of layers: sizes fall by four and widths double from
// part to part. A step is three forward passes.
TEST_CASE("a DenseNet-like chain gives up 61 % of its memory for at most 22 % more time") {
  std::vector<double> seconds;
  std::vector<int64_t> bytes;
  const int pairs[] = {6, 12, 24, 16};
  double forward = 0;
  for (int part = 0; part < 4; ++part)
    for (int i = 0; i < pairs[part]; ++i) {
      const int64_t pixels = 56 * 56 >> (2 * part), width = (64 << part) + 32 * i;
      bytes.push_back(pixels * (width + 128) * 4 * 2);
      seconds.push_back(static_cast<double>(pixels) * static_cast<double>(width * 128 + 9 * 128 * 32));
      forward += seconds.back();
    }
  const auto chain = activation_chain(seconds, bytes);
  const int64_t all = total_bytes(chain);
  const auto found = choose_recompute(chain, all * 39 / 100);
  REQUIRE(found.ok());
  CHECK(found->peak_bytes <= all * 39 / 100);
  MESSAGE("more time: ", 100 * found->seconds / (3 * forward), " %");
  CHECK(found->seconds <= 0.22 * 3 * forward);
}
