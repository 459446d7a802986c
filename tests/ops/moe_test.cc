// A mixture of experts as a whole: who is routed where, that nothing later decides what is dropped, and the
// layer against plain loops over tokens.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/ops/host_values.h"
#include "tests/ops/kernel_runner.h"

using namespace tessera;
using namespace tessera::test;

namespace {

std::vector<HostTensor> ran(const KernelCall& call) {
  auto out = run_kernel(call);
  REQUIRE_MESSAGE(out.ok(), out.status().to_string());
  return std::move(*out);
}

struct Routing {
  std::vector<HostTensor> all;
  std::vector<int32_t> ints(size_t i) const {
    const auto values = all[i].as<int32_t>();
    return {values.begin(), values.end()};
  }
  std::vector<int32_t> expert() const { return ints(0); }
  std::vector<int32_t> slot() const { return ints(1); }
  std::vector<int32_t> load() const { return ints(4); }
};

Routing route(Shape shape, const std::vector<double>& probs, int64_t k, double capacity) {
  return {ran({"moe_route", {f64(shape, probs)}, {{"k", k}, {"capacity", capacity}}})};
}

std::vector<double> positive(int64_t count, uint64_t salt) {
  std::vector<double> values = scattered(count, salt);
  for (double& value : values) value = 1.1 + value;
  return values;
}

}  // namespace

TEST_CASE("of equal probabilities the lower experts are taken, and experts of a token are never the same") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(route({1, 1, 4}, {0.25, 0.25, 0.25, 0.25}, 3, 0).expert() == std::vector<int32_t>{0, 1, 2});
  CHECK(route({1, 1, 4}, {0.1, 0.3, 0.3, 0.3}, 2, 0).expert() == std::vector<int32_t>{1, 2});
  for (const std::vector<double>& probs :
       {std::vector<double>{nan, nan, nan}, {nan, 0.5, 0.2}, {0.2, nan, 0.5}}) {
    const std::vector<int32_t> expert = route({1, 1, 3}, probs, 3, 0).expert();
    CHECK(expert[0] + expert[1] + expert[2] == 3);
    CHECK(expert[0] * expert[1] * expert[2] == 0);
  }
}

TEST_CASE("slots are handed out in the order of tokens, and a later token takes none away") {
  // All want expert 0 first. Capacity 1: an even share is 2 * 6 / 3 = 4 slots.
  std::vector<double> probs;
  for (int t = 0; t < 6; ++t) probs.insert(probs.end(), {0.6, t % 2 ? 0.3 : 0.1, t % 2 ? 0.1 : 0.3});
  const Routing routing = route({1, 6, 3}, probs, 2, 1);
  CHECK(routing.slot() == std::vector<int32_t>{0, 0, 1, 0, 2, 1, 3, 1, -1, 2, -1, 2});
  CHECK(routing.load() == std::vector<int32_t>{4, 3, 3});
  for (int t = 5; t > 0; --t) {
    std::vector<double> changed = probs;
    changed[static_cast<size_t>(3 * t)] = 0.01;  // from here on another choice
    const std::vector<int32_t> slot = route({1, 6, 3}, changed, 2, 1).slot(), before = routing.slot();
    for (size_t i = 0; i < static_cast<size_t>(2 * t); ++i) CHECK(slot[i] == before[i]);
    CHECK(slot != before);
  }
}

TEST_CASE("sequences do not take slots from each other") {
  const int64_t B = 3, T = 5, E = 4;
  const std::vector<double> probs = positive(B * T * E, 3);
  const Routing whole = route({B, T, E}, probs, 2, 0.8);
  for (int64_t b = 0; b < B; ++b) {
    const auto from = probs.begin() + b * T * E;
    const Routing alone = route({1, T, E}, std::vector<double>(from, from + T * E), 2, 0.8);
    const std::vector<int32_t> all = whole.slot();
    CHECK(alone.slot() == std::vector<int32_t>(all.begin() + b * T * 2, all.begin() + (b + 1) * T * 2));
  }
}

TEST_CASE("dispatch, the experts' product and combine are what loops over tokens give") {
  const int64_t B = 2, T = 7, E = 3, K = 2, C = 5, F = 4;
  for (const double capacity : {0.0, 0.7}) {
    const std::vector<double> probs = positive(B * T * E, 11), x = scattered(B * T * C, 12),
                              w = scattered(E * F * C, 13);
    const Routing routing = route({B, T, E}, probs, K, capacity);
    const HostTensor& load = routing.all[4];
    const auto there = ran({"moe_dispatch", {f64({B, T, C}, x), routing.all[3]}});
    const auto done = ran({"expert_matmul", {there[0], f64({E, F, C}, w), load}, {{"trans_w", int64_t{1}}}});
    const auto back = ran({"moe_combine", {done[0], routing.all[0], routing.all[1], routing.all[2]}});

    int64_t dropped = 0;
    const auto got = back[0].as<double>();
    for (int64_t r = 0; r < B * T; ++r) {
      std::vector<double> want(static_cast<size_t>(F));
      double sum = 0;
      for (int64_t j = 0; j < K; ++j)
        sum += probs[static_cast<size_t>(r * E + routing.expert()[static_cast<size_t>(r * K + j)])];
      for (int64_t j = 0; j < K; ++j) {
        const auto choice = static_cast<size_t>(r * K + j);
        const int64_t e = routing.expert()[choice];
        if (routing.slot()[choice] < 0) {
          ++dropped;
          continue;
        }
        const double gate = probs[static_cast<size_t>(r * E + e)] / sum;
        for (int64_t f = 0; f < F; ++f)
          for (int64_t c = 0; c < C; ++c)
            want[static_cast<size_t>(f)] +=
                gate * x[static_cast<size_t>(r * C + c)] * w[static_cast<size_t>((e * F + f) * C + c)];
      }
      for (int64_t f = 0; f < F; ++f)
        CHECK(got[static_cast<size_t>(r * F + f)] ==
              doctest::Approx(want[static_cast<size_t>(f)]).epsilon(1e-12));
    }
    CHECK((dropped > 0) == (capacity > 0));
  }
}

TEST_CASE("routing says what is wrong with its operands") {
  const auto message = [](Shape shape, int64_t k, double capacity) {
    const std::vector<double> probs(static_cast<size_t>(shape.elements()), 0.5);
    const auto out = run_kernel({"moe_route", {f64(shape, probs)}, {{"k", k}, {"capacity", capacity}}});
    return out.ok() ? std::string() : std::string(out.status().message());
  };
  CHECK(message({1, 2, 3}, 4, 0).find("k is 4, wanted 1 to the number of experts, which is 3") !=
        std::string::npos);
  CHECK(message({1, 2, 3}, 0, 0).find("k is 0") != std::string::npos);
  CHECK(message({1, 2, 3}, 1, -1).find("capacity is -1") != std::string::npos);
  CHECK(message({2, 3}, 1, 0).find("wanted 3 dims") != std::string::npos);
  CHECK(message({1, 2, 3}, 3, 1).empty());
}
