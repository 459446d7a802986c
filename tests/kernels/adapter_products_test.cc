// Grouped products with adapters: a token's bits depend neither on what other tokens a launch has, nor on the number of
// threads, nor on rows of zeros behind an adapter's rank, on every instruction set of this CPU; tokens without an adapter
// keep the base's.
#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "graph/base/half.h"
#include "tests/kernels/one_launch.h"

namespace tessera::cpu {
namespace {

// Adapters of slots with room for `room` rows, of which `rank` are not zeros.
struct Adapters {
  int64_t S, K, N, rank, room;
  std::vector<float> a, b;  // [S, room, K], [S, room, N]

  Adapters(int64_t S, int64_t K, int64_t N, int64_t rank, int64_t room)
      : S(S),
        K(K),
        N(N),
        rank(rank),
        room(room),
        a(padded(spread(S * rank * K, 1), K)),
        b(padded(spread(S * rank * N, 2), N)) {}

  std::vector<float> padded(const std::vector<float>& rows, int64_t columns) const {
    std::vector<float> made(static_cast<size_t>(S * room * columns));
    for (int64_t s = 0; s < S; ++s)
      std::copy_n(rows.begin() + s * rank * columns, rank * columns, made.begin() + s * room * columns);
    return made;
  }

  // base + the adapters' products for tokens `which` of x and base, whose slots are those of `slots`.
  std::vector<std::vector<float>> apply(const std::vector<float>& x, const std::vector<float>& base,
                                        const std::vector<int32_t>& slots, const std::vector<size_t>& which,
                                        DType stored, int threads) const {
    const auto T = static_cast<int64_t>(which.size());
    std::vector<float> tokens, y;
    std::vector<int32_t> adapter;
    for (const size_t t : which) {
      tokens.insert(tokens.end(), x.begin() + t * K, x.begin() + (t + 1) * K);
      y.insert(y.end(), base.begin() + t * N, base.begin() + (t + 1) * N);
      adapter.push_back(slots[t]);
    }
    std::vector<uint16_t> a16, b16;
    const auto narrow = [&](float value) {
      return stored == DType::kBF16 ? bf16_from_f32(value) : f16_from_f32(value);
    };
    const bool is_half = stored != DType::kF32;
    if (is_half) {
      for (const float value : a) a16.push_back(narrow(value));
      for (const float value : b) b16.push_back(narrow(value));
    }
    std::vector<float> low(static_cast<size_t>(T * room), -1.0f);
    launch({"adapter_shrink",
            prepare_adapter_shrink_grouped,
            {tensor(DType::kF32, {T, K}), tensor(stored, {S, room, K}), tensor(DType::kI32, {T})},
            tensor(DType::kF32, {T, room})},
           {tokens.data(), is_half ? static_cast<const void*>(a16.data()) : a.data(), adapter.data()},
           low.data(), threads);
    launch({"adapter_expand",
            prepare_adapter_expand_grouped,
            {tensor(DType::kF32, {T, room}), tensor(stored, {S, room, N}), tensor(DType::kI32, {T}),
             tensor(DType::kF32, {T, N})},
            tensor(DType::kF32, {T, N})},
           {low.data(), is_half ? static_cast<const void*>(b16.data()) : b.data(), adapter.data(), y.data()},
           y.data(), threads);
    std::vector<std::vector<float>> rows;
    for (int64_t t = 0; t < T; ++t) rows.emplace_back(y.begin() + t * N, y.begin() + (t + 1) * N);
    return rows;
  }
};

TEST_CASE("a_token_with_an_adapter_has_the_same_bits_in_any_launch_and_beside_zeros") {
  on_each_target([] {
    for (const DType stored : {DType::kF32, DType::kBF16, DType::kF16})
      for (const auto& [K, N, rank] :
           {std::tuple(300, 605, 13), std::tuple(37, 20, 1), std::tuple(128, 1100, 16)}) {
        CAPTURE(K);
        constexpr size_t kTokens = 150;
        const Adapters narrow(5, K, N, rank, rank), wide(5, K, N, rank, rank + 7);
        const std::vector<float> x = spread(kTokens * K, 7), base = spread(kTokens * N, 8);
        uint32_t seed = 3;
        std::vector<int32_t> slots;
        std::vector<size_t> all;
        for (size_t t = 0; t < kTokens; ++t) {
          slots.push_back(static_cast<int32_t>((next(seed) >> 8) % 7) - 1);  // 5 is not there
          all.push_back(t);
        }
        const auto whole = narrow.apply(x, base, slots, all, stored, 1);
        CHECK(wide.apply(x, base, slots, all, stored, 3) == whole);
        for (size_t t = 0; t < kTokens; ++t) {
          const std::vector<float> own(base.begin() + t * N, base.begin() + (t + 1) * N);
          CHECK((whole[t] == own) == (slots[t] < 0 || slots[t] > 4));
        }
        for (const size_t count : {1, 2, 3, 5, 8, 33}) {
          std::vector<size_t> some;
          for (size_t i = 0; i < count; ++i) some.push_back((next(seed) >> 8) % kTokens);
          const auto found = (count % 2 == 0 ? narrow : wide)
                                 .apply(x, base, slots, some, stored, static_cast<int>(1 + count % 3));
          for (size_t i = 0; i < count; ++i) CHECK(found[i] == whole[some[i]]);
        }
      }
  });
}

}  // namespace
}  // namespace tessera::cpu
