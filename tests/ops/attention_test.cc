// Attention against its definition with the whole T x S matrix, and what its mask reads from the shard's
// position.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/ops/host_values.h"
#include "tests/ops/kernel_runner.h"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Sizes {
  int64_t B, T, S, H, KV, D;
};

// out [B, T, H, D] by the definition.
std::vector<double> whole_matrix_attention(const Sizes& n, std::span<const double> q,
                                           std::span<const double> k, std::span<const double> v,
                                           bool causal) {
  std::vector<double> out(static_cast<size_t>(n.B * n.T * n.H * n.D));
  for (int64_t b = 0; b < n.B; ++b)
    for (int64_t t = 0; t < n.T; ++t)
      for (int64_t h = 0; h < n.H; ++h) {
        const auto query = static_cast<size_t>(((b * n.T + t) * n.H + h) * n.D);
        const auto key = [&](int64_t s) {
          return static_cast<size_t>(((b * n.S + s) * n.KV + h / (n.H / n.KV)) * n.D);
        };
        std::vector<double> p(static_cast<size_t>(n.S));
        double sum = 0;
        for (int64_t s = 0; s < n.S; ++s) {
          double score = 0;
          for (size_t d = 0; d < static_cast<size_t>(n.D); ++d) score += q[query + d] * k[key(s) + d];
          const bool seen = !causal || s <= t;
          sum += p[static_cast<size_t>(s)] = seen ? std::exp(score / std::sqrt(double(n.D))) : 0;
        }
        for (int64_t s = 0; s < n.S; ++s)
          for (size_t d = 0; d < static_cast<size_t>(n.D); ++d)
            out[query + d] += p[static_cast<size_t>(s)] / sum * v[key(s) + d];
      }
  return out;
}

double max_difference(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

struct Operands {
  HostTensor q, k, v;
};
Operands operands(const Sizes& n) {
  return {scattered_f64({n.B, n.T, n.H, n.D}, 1), scattered_f64({n.B, n.S, n.KV, n.D}, 2),
          scattered_f64({n.B, n.S, n.KV, n.D}, 3)};
}

}  // namespace

TEST_CASE("attention equals its definition with the whole T x S matrix") {
  // Grouped queries, more keys than a block, a head longer than a block, T and S different, one of
  // everything.
  for (const Sizes& n : {Sizes{2, 5, 5, 4, 2, 8}, Sizes{1, 150, 150, 1, 1, 4}, Sizes{1, 3, 70, 2, 1, 300},
                         Sizes{1, 9, 4, 3, 3, 6}, Sizes{1, 1, 1, 1, 1, 1}})
    for (int64_t causal : {0, 1}) {
      const Operands x = operands(n);
      const auto out = run_kernel({"attention", {x.q, x.k, x.v}, {{"causal", causal}}});
      REQUIRE_MESSAGE(out.ok(), out.status().to_string());
      const auto wanted =
          whole_matrix_attention(n, x.q.as<double>(), x.k.as<double>(), x.v.as<double>(), causal == 1);
      CHECK(max_difference((*out)[0].as<double>(), wanted) < 1e-13);
    }
}

TEST_CASE("a shard of the queries masks by global positions, also with two ranges") {
  const Sizes n{1, 8, 8, 2, 1, 4};
  const Operands x = operands(n);
  const auto whole = run_kernel({"attention", {x.q, x.k, x.v}});
  REQUIRE(whole.ok());
  // Queries 1, 2 and 5, 6 of 8, as a zig-zag order deals them.
  std::vector<double> part;
  for (size_t t : {1, 2, 5, 6})
    for (size_t i = 0; i < 8; ++i) part.push_back(x.q.as<double>()[t * 8 + i]);
  const FactorView t{'t', 8, 1, 2, {1, 5}, {3, 7}};
  const auto out = run_kernel({"attention", {f64({1, 4, 2, 4}, part), x.k, x.v}, {}, {t}});
  REQUIRE(out.ok());
  size_t at = 0;
  for (size_t row : {1, 2, 5, 6})
    for (size_t i = 0; i < 8; ++i)
      CHECK((*out)[0].as<double>()[at++] == (*whole)[0].as<double>()[row * 8 + i]);
}

TEST_CASE("attention without keys gives 0 and a log of the sum of -inf") {
  const Operands x = operands({1, 2, 0, 1, 1, 3});
  const auto out = run_kernel({"attention", {x.q, x.k, x.v}});
  REQUIRE(out.ok());
  for (double value : (*out)[0].as<double>()) CHECK(value == 0);
  for (double value : (*out)[1].as<double>()) CHECK(value == -std::numeric_limits<double>::infinity());
}
