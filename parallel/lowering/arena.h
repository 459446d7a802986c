// Arena: offsets for buffers with known lifetimes, so
// that an arena is sized exactly before allocation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

inline constexpr int64_t kSlotAlignment = 64;
inline constexpr int64_t align_slot(int64_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

// Lifetime: bytes needed from time `first` to `last`, inclusive.
struct Lifetime {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;
};

struct ArenaLayout {
  std::vector<int64_t> offsets;  // one per lifetime, multiples of kSlotAlignment
  int64_t bytes = 0;             // highest end
};

// Peak of the live bytes, a lower bound on any layout.
int64_t max_live_bytes(std::span<const Lifetime> lifetimes);

// Best fit in several orders (size, size times lifetime, lifetime, time of birth), until one comes within a
// thousandth of max_live_bytes; the smallest result is kept. Deterministic.
ArenaLayout layout_arena(std::span<const Lifetime> lifetimes);

}  // namespace tessera
