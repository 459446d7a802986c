// Fitted prices: monotonic in work, with the smallest change of the measurements.
#include "engine/program/fitted_prices.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace tessera;

TEST_CASE("monotonic values stay; a pair that falls becomes its geometric mean") {
  const std::vector<double> rising = {1, 2, 2, 5};
  const std::vector<double> kept = never_falling(rising);
  for (size_t i = 0; i < rising.size(); ++i) CHECK(kept[i] == doctest::Approx(rising[i]));
  const std::vector<double> fixed = never_falling({1, 8, 2, 16});
  CHECK(fixed[1] == doctest::Approx(4));
  CHECK(fixed[2] == doctest::Approx(4));
  CHECK(fixed[3] == doctest::Approx(16));
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> values(20);
    for (double& value : values) value = 1e-9 + static_cast<double>(random() % 1000);
    const std::vector<double> result = never_falling(values);
    for (size_t i = 1; i < result.size(); ++i) CHECK(result[i] >= result[i - 1]);
  }
}

TEST_CASE("a grid rises along every axis after it was raised, and no value became smaller") {
  std::mt19937 random(2);
  const std::vector<std::vector<double>> marks = {{1, 2, 3}, {1, 2}, {1, 2, 3, 4}};
  std::vector<double> seconds(24);
  for (double& value : seconds) value = 1e-6 * static_cast<double>(1 + random() % 100);
  std::vector<double> raised = seconds;
  raise_to_monotonic(raised, marks);
  for (size_t i = 0; i < 24; ++i) {
    CHECK(raised[i] >= seconds[i]);
    if (i % 4 != 0) CHECK(raised[i] >= raised[i - 1]);
    if (i / 4 % 2 != 0) CHECK(raised[i] >= raised[i - 4]);
    if (i / 8 != 0) CHECK(raised[i] >= raised[i - 8]);
  }
}

TEST_CASE("twice the work takes at most twice as long, and still never less") {
  std::mt19937 random(3);
  const std::vector<std::vector<double>> marks = {{1, 4, 8}, {1, 2, 4, 8}};
  std::vector<double> seconds(12);
  for (double& value : seconds) value = 1e-6 * static_cast<double>(1 + random() % 100);
  raise_to_monotonic(seconds, marks);
  limit_to_scale(seconds, marks);
  for (size_t i = 0; i < 12; ++i) {
    if (i % 4 != 0) {
      CHECK(seconds[i] >= seconds[i - 1]);
      CHECK(seconds[i] <= 2 * seconds[i - 1] * (1 + 1e-12));
    }
    if (i >= 4) {
      CHECK(seconds[i] >= seconds[i - 4]);
      CHECK(seconds[i] <= (i >= 8 ? 2 : 4) * seconds[i - 4] * (1 + 1e-12));
    }
  }
  std::vector<double> disturbed = {1, 2, 400, 8, 4, 8, 16, 32, 8, 16, 32, 64};
  limit_to_scale(disturbed, marks);
  CHECK(disturbed[2] == doctest::Approx(4));
}

TEST_CASE("a grid settles: what obeys both rules stays, and a disturbed value gives way to its neighbours") {
  const std::vector<std::vector<double>> marks = {{1, 4, 16, 64}, {1, 8, 64}};
  std::vector<double> exact;
  for (const double m : marks[0])
    for (const double n : marks[1]) exact.push_back(1e-6 * (2 + 0.3 * m + 0.05 * n + 0.01 * m * n));
  std::vector<double> seconds = exact;
  make_consistent(seconds, marks);
  for (size_t i = 0; i < exact.size(); ++i) CHECK(seconds[i] == doctest::Approx(exact[i]).epsilon(1e-9));
  seconds[4] *= 30;  // (4, 8)
  make_consistent(seconds, marks);
  for (size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    // Raising its neighbours to it would make one of them 13 times what it was.
    CHECK(seconds[i] < 5 * exact[i]);
    CHECK(seconds[i] >= exact[i] * (1 - 1e-9));
    if (i % 3 != 0) CHECK(seconds[i] >= seconds[i - 1]);
    if (i >= 3) CHECK(seconds[i] >= seconds[i - 3]);
    if (i % 3 != 0) CHECK(seconds[i] <= 8 * seconds[i - 1] * (1 + 1e-12));
    if (i >= 3) CHECK(seconds[i] <= 4 * seconds[i - 3] * (1 + 1e-12));
  }
}

TEST_CASE("a curve takes the median of equal work and keeps its ends") {
  const PriceCurve curve = fit_curve({{100, 1, 0}, {100, 3, 0}, {100, 9, 0}, {110, 4, 0}, {1000, 50, 0}});
  REQUIRE(curve.bytes.size() == 2);
  CHECK(curve.bytes[0] == 100);
  CHECK(curve.seconds[0] == doctest::Approx(3));
  CHECK(curve.seconds[1] == doctest::Approx(50));
  const PriceTable table = fit_table("add", DType::kF32, {{10, 2, 1}, {1000, 3, 30}}, true);
  // Shared time may be below the time with helping cores: a far core costs more than it saves.
  CHECK(table.shared_seconds[0] == doctest::Approx(1));
  CHECK(table.shared_seconds[1] == doctest::Approx(30));
}

TEST_CASE("combine_passes takes the slowest time with helping cores and the median time without") {
  const auto points = combine_passes({{{8, 1, 5}, {9, 4, 7}}, {{8, 3, 6}, {9, 2, 9}}, {{8, 2, 40}, {9, 3, 8}}});
  REQUIRE(points.size() == 2);
  CHECK(points[0].seconds == 3);
  CHECK(points[0].shared_seconds == 6);
  CHECK(points[1].seconds == 4);
  CHECK(points[1].shared_seconds == 8);
  CHECK(points[1].work == 9);
}
