// TokenGroups: the tokens of a launch in the order of their adapters' slots.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::cpu {

inline constexpr int64_t kTileTokens = 16;

// Tokens order[first, first + count), all of `slot`; slot -1: without an adapter.
struct SlotTile {
  int32_t first, count, slot;
};

// TokenGroups: the tokens of a launch in the order of their slots, cut into tiles; in the workspace.
struct TokenGroups {
  int64_t tokens, slots;

  static constexpr int64_t kHeader = 16;  // numbers before the rest: the first is the number of tiles
  int64_t numbers() const { return kHeader + (slots + 2) + tokens + 3 * tokens; }
  int64_t bytes() const { return (4 * numbers() + 63) / 64 * 64; }

  int32_t& tiles(void* memory) const { return *static_cast<int32_t*>(memory); }
  int32_t* starts(void* memory) const { return static_cast<int32_t*>(memory) + kHeader; }
  int32_t* order(void* memory) const { return starts(memory) + slots + 2; }
  SlotTile* tile(void* memory, int64_t i) const {
    return reinterpret_cast<SlotTile*>(order(memory) + tokens) + i;
  }

  // `adapter` is untrusted. A counting sort: bucket 0 has the tokens without an adapter.
  void group(const int32_t* adapter, void* memory) const {
    // The end of the planned bytes is touched by every run.
    static_cast<std::byte*>(memory)[bytes() - 1] = std::byte{0};
    const auto bucket = [&](int64_t t) { return adapter[t] >= 0 && adapter[t] < slots ? adapter[t] + 1 : 0; };
    int32_t* const begin = starts(memory);
    std::fill_n(begin, slots + 2, 0);
    for (int64_t t = 0; t < tokens; ++t) ++begin[bucket(t) + 1];
    for (int64_t i = 0; i <= slots; ++i) begin[i + 1] += begin[i];
    int32_t count = 0;
    for (int64_t i = 0; i <= slots; ++i)
      for (int32_t first = begin[i]; first < begin[i + 1]; first += kTileTokens)
        *tile(memory, count++) = {first, std::min<int32_t>(kTileTokens, begin[i + 1] - first),
                                  static_cast<int32_t>(i) - 1};
    tiles(memory) = count;
    for (int64_t t = 0; t < tokens; ++t) order(memory)[begin[bucket(t)]++] = static_cast<int32_t>(t);
  }

  // The tokens of a slot, ascending; once they are grouped, begins are those of the next bucket.
  std::span<const int32_t> of_slot(void* memory, int64_t slot) const {
    const int32_t* const begin = starts(memory) + slot;
    return {order(memory) + begin[0], static_cast<size_t>(begin[1] - begin[0])};
  }
};

}  // namespace tessera::cpu
