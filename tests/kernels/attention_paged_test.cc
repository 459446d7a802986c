// Fast attention over pages: a token's bits depend neither on what other tokens a launch has, nor on where its pages lie,
// nor on the number of threads, on every instruction set of this CPU; and they are those over a whole cache. Pages of 16
// and 8 bits, and values that are the first numbers of keys, against sums in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <numeric>
#include <span>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "tests/kernels/one_launch.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kPage = 64;

struct Sizes {
  int64_t H, KV, D;
  std::vector<int64_t> lengths;  // of the sequences
  int64_t window = 0;
  int64_t value_width =
      0;  // of values that are the first numbers of keys; 0: they have pages, and the keys' width

  int64_t V() const { return value_width > 0 ? value_width : D; }
};

// A token: position `at` of sequence `row`.
struct At {
  int32_t row, at;
};

// Keys, values and queries of every position of every sequence; the pages in an order that `seed` says.
class Sequences {
 public:
  Sequences(Sizes sizes, uint32_t seed, DType dtype = DType::kF32) : n(std::move(sizes)), dtype_(dtype) {
    const int64_t rows = std::ssize(n.lengths);
    for (const int64_t length : n.lengths) columns_ = std::max(columns_, (length + kPage - 1) / kPage + 1);
    pages_ = rows * columns_ + 3;
    std::vector<int32_t> order(static_cast<size_t>(pages_));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next(seed) % i]);
    table_.assign(static_cast<size_t>(rows * columns_), -1);
    size_t used = 0;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t page = 0; page * kPage < n.lengths[row]; ++page)
        table_[row * columns_ + page] = order[used++];
    const int64_t width = n.KV * n.D;
    k_.assign(static_cast<size_t>(dtype_bytes(dtype_, pages_ * kPage * width)),
              std::byte{0xff});  // a NaN of every type: unwritten slots are never read
    v_ = k_;
    const int64_t row_bytes = dtype_bytes(dtype_, width);
    for (int64_t row = 0; row < rows; ++row) {
      k_of.push_back(spread(n.lengths[row] * width, static_cast<uint32_t>(100 + row)));
      v_of.push_back(spread(n.lengths[row] * width, static_cast<uint32_t>(200 + row)));
      q_of.push_back(spread(n.lengths[row] * n.H * n.D, static_cast<uint32_t>(300 + row)));
      const std::vector<std::byte> k = stored(k_of.back()), v = stored(v_of.back());
      for (int64_t s = 0; s < n.lengths[row]; ++s) {
        const int64_t slot = table_[row * columns_ + s / kPage] * kPage + s % kPage;
        std::copy_n(k.begin() + s * row_bytes, row_bytes, k_.begin() + slot * row_bytes);
        std::copy_n(v.begin() + s * row_bytes, row_bytes, v_.begin() + slot * row_bytes);
      }
    }
  }

  // Results [H, V] of each token, of one launch.
  std::vector<std::vector<float>> attend(const std::vector<At>& tokens, int threads) const {
    const int64_t T = std::ssize(tokens), row = n.H * n.D, out_row = n.H * n.V();
    std::vector<float> q, out(static_cast<size_t>(T * out_row), -12345.0f);
    std::vector<int32_t> rows, positions;
    for (const At& token : tokens) {
      q.insert(q.end(), q_of[token.row].begin() + token.at * row,
               q_of[token.row].begin() + (token.at + 1) * row);
      rows.push_back(token.row);
      positions.push_back(token.at);
    }
    const tsr_abi_tensor of_pages = tensor(dtype_, {pages_, kPage, n.KV, n.D});
    const tsr_abi_tensor of_tokens = tensor(DType::kI32, {1, T});
    std::vector<tsr_abi_tensor> in = {tensor(DType::kF32, {1, T, n.H, n.D}),
                                      of_pages,
                                      of_pages,
                                      tensor(DType::kI32, {std::ssize(n.lengths), columns_}),
                                      of_tokens,
                                      of_tokens};
    std::vector<const void*> data = {q.data(),      k_.data(),   v_.data(),
                                     table_.data(), rows.data(), positions.data()};
    if (n.value_width > 0) {
      in.erase(in.begin() + 2);
      data.erase(data.begin() + 2);
    }
    launch({"attention_paged", prepare_attention_paged_flash, in, tensor(DType::kF32, {1, T, n.H, n.V()}),
            attention_attrs(n.window, n.value_width)},
           data, out.data(), threads);
    std::vector<std::vector<float>> results;
    for (int64_t t = 0; t < T; ++t)
      results.emplace_back(out.begin() + t * out_row, out.begin() + (t + 1) * out_row);
    return results;
  }

  double error(const At& token, const std::vector<float>& result) const {
    double worst = 0;
    for (int64_t h = 0; h < n.H; ++h) {
      const int64_t kv = h / (n.H / n.KV), width = n.KV * n.D;
      const float* q = q_of[token.row].data() + (token.at * n.H + h) * n.D;
      const std::vector<float>& values = n.value_width > 0 ? k_of[token.row] : v_of[token.row];
      std::vector<double> value(static_cast<size_t>(n.V()));
      double sum = 0;
      for (int64_t s = n.window > 0 ? std::max<int64_t>(token.at - n.window + 1, 0) : 0; s <= token.at; ++s) {
        double score = 0;
        for (int64_t d = 0; d < n.D; ++d) score += double(q[d]) * k_of[token.row][s * width + kv * n.D + d];
        const double p = std::exp(score / std::sqrt(double(n.D)));
        sum += p;
        for (int64_t d = 0; d < n.V(); ++d) value[d] += p * values[s * width + kv * n.D + d];
      }
      for (int64_t d = 0; d < n.V(); ++d)
        worst = std::max(worst, std::abs(result[h * n.V() + d] - value[d] / sum));
    }
    return worst;
  }

  const Sizes n;
  std::vector<std::vector<float>> k_of, v_of, q_of;  // by sequence

 private:
  // Rows as pages have them; `values` become the rounded numbers.
  std::vector<std::byte> stored(std::vector<float>& values) const {
    const int64_t count = std::ssize(values);
    std::vector<std::byte> made(static_cast<size_t>(dtype_bytes(dtype_, count)));
    REQUIRE(encode_blocks(dtype_, values.data(), count, made.data()).ok());
    decode_blocks(dtype_, made.data(), values.data(), count);
    return made;
  }

  const DType dtype_;
  int64_t columns_ = 0, pages_ = 0;
  std::vector<int32_t> table_;
  std::vector<std::byte> k_, v_;
};

const Sizes kSizes[] = {{9, 3, 64, {300, 20, 130, 1}},
                        {4, 4, 20, {257, 64, 65}},
                        {8, 1, 33, {200, 190}},
                        {6, 3, 24, {300, 80}, 100},
                        // one head of keys that hold the values: more heads than a tile has rows; wide ones
                        {96, 1, 21, {140, 65}, 0, 16},
                        {3, 1, 320, {200, 66}, 0, 272}};
// Heads of whole blocks.
const Sizes kBlockSizes[] = {
    {9, 3, 32, {300, 20, 130, 1}}, {4, 2, 96, {257, 64}, 100}, {80, 1, 64, {140, 65}, 0, 32}};

// body(sizes, type of pages)
template <class Body>
void for_each_form(std::initializer_list<DType> plain, Body body) {
  for (const DType dtype : plain)
    for (const Sizes& n : kSizes) body(n, dtype);
  for (const Sizes& n : kBlockSizes) body(n, DType::kQ8_0);
}

TEST_CASE("a_token_over_pages_has_the_same_bits_in_any_launch_wherever_its_pages_lie") {
  on_each_target([] {
    for_each_form({DType::kF32}, [](const Sizes& n, DType dtype) {
      CAPTURE(to_text(dtype));
      const Sequences here(n, 1, dtype), elsewhere(n, 77, dtype);
      std::vector<At> all;
      for (int32_t row = 0; row < static_cast<int32_t>(n.lengths.size()); ++row)
        for (int32_t at = 0; at < n.lengths[row]; ++at) all.push_back({row, at});
      const auto whole = here.attend(all, 1);  // every prompt at once, by tiles
      CHECK(elsewhere.attend(all, 3) == whole);
      uint32_t seed = 5;
      for (const size_t count : {1, 2, 3, 4, 5, 9, 17, 64}) {
        CAPTURE(count);
        // Tokens of any sequences, in runs that follow one another.
        std::vector<At> tokens;
        std::vector<size_t> numbers;
        while (tokens.size() < count) {
          const size_t first = next(seed) % all.size(), run = 1 + next(seed) % 4;
          for (size_t i = first; i < std::min(first + run, all.size()) && tokens.size() < count; ++i) {
            tokens.push_back(all[i]);
            numbers.push_back(i);
          }
        }
        const auto found =
            (count % 2 == 0 ? here : elsewhere).attend(tokens, static_cast<int>(1 + count % 3));
        for (size_t i = 0; i < count; ++i) CHECK(found[i] == whole[numbers[i]]);
      }
    });
  });
}

TEST_CASE("tokens_over_pages_of_any_type_equal_sums_in_double") {
  on_each_target([] {
    for_each_form({DType::kF32, DType::kBF16, DType::kF16}, [](const Sizes& n, DType dtype) {
      const Sequences sequences(n, 3, dtype);
      const std::vector<At> tokens = {
          {0, static_cast<int32_t>(n.lengths[0]) - 1}, {1, 0}, {1, 1}, {0, 128}, {0, 63}};
      const auto found = sequences.attend(tokens, 2);
      for (size_t i = 0; i < tokens.size(); ++i) CHECK(sequences.error(tokens[i], found[i]) < 1e-6);
    });
  });
}

TEST_CASE("rows_in_pages_of_8_bits_are_the_encoder's_in_any_launch_and_what_is_not_finite_stays_visible") {
  constexpr int64_t kRow = 2 * 64, kTokens = 70;  // more than a task takes
  const tsr_abi_tensor pages = tensor(DType::kQ8_0, {2, kTokens, 2, 64});
  const auto written = [&](const std::vector<float>& rows, const std::vector<int32_t>& slots, int threads) {
    const int64_t count = std::ssize(slots);
    const std::vector<std::byte> before(static_cast<size_t>(dtype_bytes(DType::kQ8_0, 2 * kTokens * kRow)));
    std::vector<std::byte> after(before.size());
    launch({"kv_write",
            prepare_kv_write,
            {pages, tensor(DType::kF32, {1, count, 2, 64}), tensor(DType::kI32, {1, count})},
            pages},
           {before.data(), rows.data(), slots.data()}, after.data(), threads);
    return after;
  };
  const int64_t row_bytes = dtype_bytes(DType::kQ8_0, kRow);
  std::vector<float> rows = spread(kTokens * kRow, 5);
  for (int64_t i = 0; i < std::ssize(rows); ++i)
    rows[i] *= std::pow(10.0f, static_cast<float>(i / 32 % 12 - 9));
  std::vector<int32_t> slots(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) slots[t] = static_cast<int32_t>(2 * t);
  const std::vector<std::byte> all = written(rows, slots, 3);
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<float> row(rows.begin() + t * kRow, rows.begin() + (t + 1) * kRow);
    std::vector<std::byte> wanted(static_cast<size_t>(row_bytes));
    REQUIRE(encode_blocks(DType::kQ8_0, row.data(), kRow, wanted.data()).ok());
    CHECK(std::ranges::equal(std::span(all).subspan(2 * t * row_bytes, row_bytes), wanted));
    const std::vector<std::byte> alone = written(row, {1}, 1);
    CHECK(std::ranges::equal(std::span(alone).subspan(row_bytes, row_bytes), wanted));
  }
  for (const float poison : {std::nanf(""), INFINITY, -INFINITY, 1e7f}) {
    CAPTURE(poison);
    std::vector<float> row(rows.begin(), rows.begin() + kRow), found(kRow);
    row[40] = poison;
    decode_blocks(DType::kQ8_0, written(row, {0}, 1).data(), found.data(), kRow);
    for (int64_t i = 0; i < kRow; ++i) CHECK(std::isnan(found[i]) == (i / 32 == 1));
  }
}

TEST_CASE("tokens_over_more_keys_than_shared_spans_have_room_for_are_computed_tile_by_tile") {
  // 40 tokens of 8 heads over 33 spans: more results than the workspace keeps of spans.
  Sizes n{8, 8, 64, std::vector<int64_t>(40, 1)};
  n.lengths[0] = 4200;
  n.lengths[7] = 4100;
  const Sequences sequences(n, 9);
  std::vector<At> tokens;
  for (int32_t i = 0; i < 60; ++i) tokens.push_back({i % 2 == 0 ? 0 : 7, 4000 + i});
  const auto together = sequences.attend(tokens, 2);
  for (const size_t i : {0, 1, 37}) CHECK(sequences.attend({tokens[i]}, 1)[0] == together[i]);
}

}  // namespace
}  // namespace tessera::cpu
