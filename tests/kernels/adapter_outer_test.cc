// Sums of adapter_outer, to the bit: those of a slot depend neither on other slots' tokens, whatever they hold, nor on the place of
// its rows in the batch, on the number of calls that have the rows in order, or on the number of threads, on every instruction set
// of this CPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "tests/kernels/one_launch.h"

namespace tessera::cpu {
namespace {

// Rows of T tokens with the slots of their adapters.
struct Batch {
  int64_t S, T, R, K;
  std::vector<float> low, x;
  std::vector<int32_t> adapter;

  int64_t rows() const { return static_cast<int64_t>(adapter.size()) / T; }

  // The rows of these numbers, in this order.
  Batch of(const std::vector<int64_t>& which) const {
    Batch made{S, T, R, K, {}, {}, {}};
    for (const int64_t row : which) {
      made.low.insert(made.low.end(), low.begin() + row * T * R, low.begin() + (row + 1) * T * R);
      made.x.insert(made.x.end(), x.begin() + row * T * K, x.begin() + (row + 1) * T * K);
      made.adapter.insert(made.adapter.end(), adapter.begin() + row * T, adapter.begin() + (row + 1) * T);
    }
    return made;
  }
  // The same with tokens of other slots that are no numbers.
  Batch alone(int64_t slot) const {
    Batch made = *this;
    for (size_t t = 0; t < adapter.size(); ++t) {
      if (adapter[t] == slot) continue;
      std::fill_n(made.low.begin() + static_cast<int64_t>(t) * R, R, std::numeric_limits<float>::quiet_NaN());
      std::fill_n(made.x.begin() + static_cast<int64_t>(t) * K, K, std::numeric_limits<float>::infinity());
    }
    return made;
  }
};

// A slot has many tokens of some rows, few of others, and none of a third of them; the last slot has none at all.
Batch random_batch(int64_t S, int64_t rows, int64_t T, int64_t R, int64_t K) {
  Batch batch{S, T, R, K, spread(rows * T * R, 1), spread(rows * T * K, 2), {}};
  uint32_t seed = 3;
  for (int64_t row = 0; row < rows; ++row) {
    const auto common = static_cast<int32_t>((next(seed) >> 8) % static_cast<uint32_t>(S - 1));
    for (int64_t t = 0; t < T; ++t) {
      const uint32_t draw = (next(seed) >> 8) % 10;
      const int32_t other = (common + 1) % static_cast<int32_t>(S - 1);
      batch.adapter.push_back(draw < 7 ? common : draw == 7 ? -1 : draw == 8 ? static_cast<int32_t>(S) : other);
    }
  }
  return batch;
}

class Outer {
 public:
  Outer(const char* op, PrepareFn prepare) : op_(op), prepare_(prepare) {}

  std::vector<float> add(const Batch& batch, const std::vector<float>& sum, int threads, bool in_place = true) const {
    std::vector<float> out = in_place ? sum : std::vector<float>(sum.size(), -7.0f);
    const std::vector<int64_t> dims = {batch.S, batch.R, batch.K};
    launch({op_,
            prepare_,
            {tensor(DType::kF32, {batch.rows(), batch.T, batch.R}), tensor(DType::kF32, {batch.rows(), batch.T, batch.K}),
             tensor(DType::kI32, {batch.rows(), batch.T}), tensor(DType::kF32, dims)},
            tensor(DType::kF32, dims)},
           {batch.low.data(), batch.x.data(), batch.adapter.data(), in_place ? out.data() : sum.data()}, out.data(), threads);
    return out;
  }

 private:
  const char* op_;
  PrepareFn prepare_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b, int64_t begin, int64_t end) {
  return std::memcmp(a.data() + begin, b.data() + begin, static_cast<size_t>(end - begin) * sizeof(float)) == 0;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return same_bits(a, b, 0, static_cast<int64_t>(a.size()));
}

void check_values(const Batch& batch, const std::vector<float>& sum, const std::vector<float>& got) {
  std::vector<double> want(sum.begin(), sum.end()), sizes(sum.size(), 1.0);
  for (size_t t = 0; t < batch.adapter.size(); ++t)
    for (int64_t r = 0; r < batch.R && batch.adapter[t] >= 0 && batch.adapter[t] < batch.S; ++r)
      for (int64_t k = 0; k < batch.K; ++k) {
        const auto at = static_cast<size_t>((batch.adapter[t] * batch.R + r) * batch.K + k), token = t;
        const double product = double(batch.low[token * static_cast<size_t>(batch.R) + static_cast<size_t>(r)]) *
                               double(batch.x[token * static_cast<size_t>(batch.K) + static_cast<size_t>(k)]);
        want[at] += product;
        sizes[at] += std::fabs(product);
      }
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::fabs(got[i] - want[i]) / sizes[i]);
  CHECK(worst < 1e-6);  // some dozen roundings of sums in blocks, each 6e-8 of what is summed so far
}

void check_bits(const Outer& outer, const Batch& batch) {
  std::vector<float> sum = spread(batch.S * batch.R * batch.K, 9);
  const int64_t size = batch.R * batch.K, rows = batch.rows();
  sum[static_cast<size_t>((batch.S - 1) * size)] = std::numeric_limits<float>::quiet_NaN();  // of the slot without tokens
  const auto whole = outer.add(batch, sum, 1);
  CHECK(same_bits(outer.add(batch, sum, 3), whole));
  CHECK(same_bits(outer.add(batch, sum, 2, false), whole));
  CHECK(same_bits(whole, sum, (batch.S - 1) * size, batch.S * size));
  std::vector<int64_t> all;
  for (int64_t row = 0; row < rows; ++row) all.push_back(row);
  // Calls of one row, and of some rows.
  for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{3}}) {
    auto in_calls = sum;
    for (int64_t row = 0; row < rows; row += step)
      in_calls = outer.add(batch.of({all.begin() + row, all.begin() + std::min(rows, row + step)}), in_calls, 2);
    CHECK(same_bits(in_calls, whole));
  }
  for (int64_t slot = 0; slot < batch.S; ++slot) {
    CAPTURE(slot);
    CHECK(same_bits(outer.add(batch.alone(slot), sum, 2), whole, slot * size, (slot + 1) * size));
    // Its rows alone, and behind those that it has none of.
    std::vector<int64_t> own, others;
    for (const int64_t row : all) {
      const auto first = batch.adapter.begin() + row * batch.T;
      (std::find(first, first + batch.T, slot) != first + batch.T ? own : others).push_back(row);
    }
    if (own.empty()) continue;
    CHECK(same_bits(outer.add(batch.of(own), sum, 3), whole, slot * size, (slot + 1) * size));
    others.insert(others.end(), own.begin(), own.end());
    CHECK(same_bits(outer.add(batch.of(others), sum, 1), whole, slot * size, (slot + 1) * size));
  }
}

TEST_CASE("sums_of_a_slot_have_the_same_bits_in_any_batch_and_in_any_number_of_calls") {
  for (const auto& [S, rows, T, R, K] : {std::tuple(5, 7, 75, 13, 101), std::tuple(3, 4, 130, 70, 200), std::tuple(9, 40, 1, 4, 48),
                                         std::tuple(2, 5, 33, 1, 3)}) {
    CAPTURE(K);
    const Batch batch = random_batch(S, rows, T, R, K);
    const auto sum = spread(S * R * K, 9);
    check_bits({"adapter_outer", prepare_adapter_outer}, batch);
    check_values(batch, sum, Outer("adapter_outer", prepare_adapter_outer).add(batch, sum, 1));
    on_each_target([&] {
      const Outer outer("adapter_outer", prepare_adapter_outer_grouped);
      check_bits(outer, batch);
      check_values(batch, sum, outer.add(batch, sum, 2));
      const std::vector<float> zeros(sum.size());
      CHECK(same_bits(Outer("adapter_outer_part", prepare_adapter_outer_part_grouped).add(batch, sum, 2),
                      outer.add(batch, zeros, 2)));
    });
  }
}

}  // namespace
}  // namespace tessera::cpu
