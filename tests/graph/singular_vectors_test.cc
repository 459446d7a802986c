// Largest singular values against one-sided Jacobi, an independent method.
#include "graph/base/singular_vectors.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "graph/base/philox.h"

using namespace tessera;

namespace {

std::vector<double> random_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<double> w(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < w.size(); ++i) {
    const auto bits = philox_bits(seed, 1, i);
    w[i] = uniform_from_bits(bits[0], bits[1]) - 0.5;
  }
  return w;
}

// All singular values, largest first: rotations make the columns of W orthogonal (Hestenes).
std::vector<double> jacobi(std::vector<double> w, size_t rows, size_t columns) {
  const auto dot = [&](size_t p, size_t q) {
    double sum = 0;
    for (size_t i = 0; i < rows; ++i) sum += w[i * columns + p] * w[i * columns + q];
    return sum;
  };
  bool rotates = true;
  for (int sweep = 0; rotates && sweep < 40; ++sweep) {
    rotates = false;
    for (size_t p = 0; p < columns; ++p)
      for (size_t q = p + 1; q < columns; ++q) {
        const double a = dot(p, p), b = dot(q, q), c = dot(p, q);
        if (std::abs(c) <= 1e-14 * std::sqrt(a * b)) continue;
        rotates = true;
        const double zeta = (b - a) / (2 * c),
                     t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta)),
                     cosine = 1 / std::sqrt(1 + t * t), sine = cosine * t;
        for (size_t i = 0; i < rows; ++i) {
          const double x = w[i * columns + p], y = w[i * columns + q];
          w[i * columns + p] = cosine * x - sine * y;
          w[i * columns + q] = sine * x + cosine * y;
        }
      }
  }
  std::vector<double> values;
  for (size_t p = 0; p < columns; ++p) values.push_back(std::sqrt(dot(p, p)));
  std::ranges::sort(values, std::greater<>());
  return values;
}

// Each pair is one of W's, and vectors are orthonormal.
void check_pairs(const std::vector<double>& w, int64_t rows, int64_t columns, const SingularVectors& found) {
  const auto n = static_cast<size_t>(columns);
  for (size_t k = 0; k < found.values.size(); ++k) {
    const double* const u = found.u.data() + k * static_cast<size_t>(rows);
    const double* const v = found.v.data() + k * n;
    for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
      double sum = 0;
      for (size_t j = 0; j < n; ++j) sum += w[i * n + j] * v[j];
      // Residuals of the Gram matrix are 1e-10 of its largest value, those of W the root of it at worst for small values.
      CHECK(std::abs(sum - found.values[k] * u[i]) <= 1e-9 * found.values[0]);
    }
    for (size_t other = 0; other < k; ++other) {
      double product = 0;
      for (size_t j = 0; j < n; ++j) product += v[j] * found.v[other * n + j];
      CHECK(std::abs(product) < 1e-12);
    }
  }
}

}  // namespace

TEST_CASE("the largest singular values are those that Jacobi finds, whichever side is longer") {
  for (const auto& [rows, columns, count] :
       {std::tuple(40, 24, 5), std::tuple(24, 40, 5), std::tuple(130, 90, 8), std::tuple(7, 7, 7),
        std::tuple(1, 9, 1), std::tuple(9, 1, 1)}) {
    CAPTURE(rows);
    const auto w = random_matrix(rows, columns, static_cast<uint64_t>(rows));
    const auto found = largest_singular_vectors(w, rows, columns, count);
    REQUIRE(found.ok());
    const auto wanted = jacobi(w, static_cast<size_t>(rows), static_cast<size_t>(columns));
    for (size_t k = 0; k < static_cast<size_t>(count); ++k)
      CHECK(found->values[k] == doctest::Approx(wanted[k]).epsilon(1e-10));
    check_pairs(w, rows, columns, *found);
  }
}

TEST_CASE("matrices of a low rank, of equal values, and of zeros have singular vectors, too") {
  std::vector<double> same(12 * 12), low(12 * 10);
  for (size_t i = 0; i < 12; ++i) same[i * 12 + i] = -3;
  for (size_t i = 0; i < 12; ++i)
    for (size_t j = 0; j < 10; ++j) low[i * 10 + j] = static_cast<double>(i + 1) * static_cast<double>(j);
  const auto identity = largest_singular_vectors(same, 12, 12, 4);
  REQUIRE(identity.ok());
  for (const double value : identity->values) CHECK(value == doctest::Approx(3));
  check_pairs(same, 12, 12, *identity);
  const auto one = largest_singular_vectors(low, 12, 10, 3);
  REQUIRE(one.ok());
  CHECK(one->values[0] == doctest::Approx(std::sqrt(650.0 * 285.0)));
  CHECK(one->values[1] <= 1e-6 * one->values[0]);  // the root of what f64 leaves of the Gram matrix
  const auto none = largest_singular_vectors(std::vector<double>(20), 5, 4, 2);
  REQUIRE(none.ok());
  CHECK(none->values == std::vector<double>{0, 0});
}

TEST_CASE("a matrix with a value that is no number has no singular values, and says so") {
  const auto refused = largest_singular_vectors(std::vector<double>{1, NAN}, 1, 2, 1);
  REQUIRE(!refused.ok());
  CHECK(refused.status().message().find("not finite") != std::string_view::npos);
  CHECK(!largest_singular_vectors(std::vector<double>{1, 2}, 1, 2, 2).ok());
}
