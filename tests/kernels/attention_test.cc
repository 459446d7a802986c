// Fast attention over a cache: a row's bits depend neither on how many rows come with it nor on how many threads
// share its keys, on every instruction set of this CPU; and against sums in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "tests/kernels/one_launch.h"

namespace tessera::cpu {
namespace {

struct Sizes {
  int64_t B, H, KV, D, S;
  int64_t window = 0;
};

// Queries [B, T, H, D] from position `start` on, of all sequences alike.
std::vector<float> attend(const Sizes& n, const std::vector<float>& q, int64_t T, const std::vector<float>& k,
                          const std::vector<float>& v, int32_t start, int threads) {
  const std::vector<tsr_abi_tensor> in = {
      tensor(DType::kF32, {n.B, T, n.H, n.D}), tensor(DType::kF32, {n.B, n.S, n.KV, n.D}),
      tensor(DType::kF32, {n.B, n.S, n.KV, n.D}), tensor(DType::kI32, {n.B})};
  std::vector<tsr_abi_factor> factors(2);
  for (const auto& [at, name, extent] : {std::tuple(0, 't', T), std::tuple(1, 's', n.S)}) {
    factors[at].name = name;
    factors[at].range_count = 1;
    factors[at].global_extent = factors[at].end[0] = extent;
    factors[at].unit = 1;
  }
  const std::vector<int32_t> starts(static_cast<size_t>(n.B), start);
  std::vector<float> out(q.size(), -12345.0f);
  launch({"attention_cached", prepare_attention_cached_flash, in, in[0], attention_attrs(n.window), factors},
         {q.data(), k.data(), v.data(), starts.data()}, out.data(), threads);
  return out;
}

// Rows [first, first + count) of every sequence of a [B, T, row] tensor.
std::vector<float> rows_of_all(const std::vector<float>& whole, int64_t B, int64_t T, int64_t row,
                               int64_t first, int64_t count) {
  std::vector<float> part;
  for (int64_t b = 0; b < B; ++b)
    part.insert(part.end(), whole.begin() + (b * T + first) * row,
                whole.begin() + (b * T + first + count) * row);
  return part;
}

void check_bits(const Sizes& n) {
  CAPTURE(n.H);
  CAPTURE(n.D);
  const int64_t T = n.S, row = n.H * n.D;
  const std::vector<float> q = spread(n.B * T * row, 1);
  const std::vector<float> k = spread(n.B * n.S * n.KV * n.D, 2), v = spread(n.B * n.S * n.KV * n.D, 3);
  const std::vector<float> whole = attend(n, q, T, k, v, 0, 1);
  CHECK(attend(n, q, T, k, v, 0, 3) == whole);
  // Chunks as decoding and prefill make them, at places on and off the edges of blocks and spans.
  for (const int64_t count : {1, 2, 5, 16, 33})
    for (const int64_t first : {0, 1, 63, 64, 127, 128, 200, 256, 290}) {
      if (first + count > T) continue;
      CAPTURE(first);
      CAPTURE(count);
      const std::vector<float> wanted = rows_of_all(whole, n.B, T, row, first, count);
      const std::vector<float> queries = rows_of_all(q, n.B, T, row, first, count);
      CHECK(attend(n, queries, count, k, v, static_cast<int32_t>(first), 1) == wanted);
      CHECK(attend(n, queries, count, k, v, static_cast<int32_t>(first), 3) == wanted);
    }
}

TEST_CASE("a_row_over_a_cache_has_the_same_bits_alone_and_in_any_chunk_for_any_thread_count") {
  on_each_target([] {
    for (const Sizes& n :
         {Sizes{1, 9, 3, 64, 300}, Sizes{2, 2, 2, 20, 300}, Sizes{1, 8, 1, 33, 260}, Sizes{1, 3, 3, 64, 100},
          Sizes{1, 6, 3, 24, 300, 100}, Sizes{2, 8, 1, 33, 300, 17}, Sizes{1, 2, 2, 16, 300, 150}})
      check_bits(n);
  });
}

TEST_CASE("attention_of_few_rows_over_several_spans_equals_sums_in_double") {
  on_each_target([] {
    for (const Sizes& n : {Sizes{1, 6, 2, 24, 500}, Sizes{1, 1, 1, 64, 129}})
      for (const int64_t T : {1, 3}) {
        const std::vector<float> q = spread(T * n.H * n.D, 1);
        const std::vector<float> k = spread(n.S * n.KV * n.D, 2), v = spread(n.S * n.KV * n.D, 3);
        const int64_t start = n.S - T;
        const std::vector<float> out = attend(n, q, T, k, v, static_cast<int32_t>(start), 2);
        double worst = 0;
        for (int64_t t = 0; t < T; ++t)
          for (int64_t h = 0; h < n.H; ++h) {
            const int64_t kv = h / (n.H / n.KV), query = (t * n.H + h) * n.D;
            std::vector<double> value(static_cast<size_t>(n.D));
            double sum = 0;
            for (int64_t s = 0; s <= start + t; ++s) {
              double score = 0;
              for (int64_t d = 0; d < n.D; ++d) score += double(q[query + d]) * k[(s * n.KV + kv) * n.D + d];
              const double p = std::exp(score / std::sqrt(double(n.D)));
              sum += p;
              for (int64_t d = 0; d < n.D; ++d) value[d] += p * v[(s * n.KV + kv) * n.D + d];
            }
            for (int64_t d = 0; d < n.D; ++d)
              worst = std::max(worst, std::abs(out[query + d] - value[d] / sum));
          }
        CHECK(worst < 1e-6);
      }
  });
}

TEST_CASE("a_window_over_all_keys_has_the_bits_of_none_and_a_narrow_one_reads_no_other_keys") {
  on_each_target([] {
    Sizes n{1, 4, 2, 24, 300};
    const std::vector<float> q = spread(n.H * n.D, 1);
    std::vector<float> k = spread(n.S * n.KV * n.D, 2), v = spread(n.S * n.KV * n.D, 3);
    const std::vector<float> all = attend(n, q, 1, k, v, 290, 2);
    n.window = 291;
    CHECK(attend(n, q, 1, k, v, 290, 2) == all);
    n.window = 20;
    const std::vector<float> near = attend(n, q, 1, k, v, 290, 2);
    CHECK(near != all);
    // Position 271 is the first that is seen; what lies before its tile of keys is not even looked at.
    std::fill_n(k.begin(), 256 * n.KV * n.D, std::nanf(""));
    std::fill_n(v.begin(), 256 * n.KV * n.D, std::nanf(""));
    CHECK(attend(n, q, 1, k, v, 290, 2) == near);
  });
}

TEST_CASE("a_start_outside_the_cache_reads_nothing_outside_it") {
  const Sizes n{1, 2, 1, 16, 300};
  const std::vector<float> q = spread(2 * 16, 1), k = spread(300 * 16, 2), v = spread(300 * 16, 3);
  for (const float value : attend(n, q, 1, k, v, -2000000000, 2)) CHECK(value == 0);
  CHECK(attend(n, q, 1, k, v, 2000000000, 2) == attend(n, q, 1, k, v, 299, 1));
}

}  // namespace
}  // namespace tessera::cpu
