// RankSet: the ranks of a world that live in this process, which are consecutive.
#pragma once

#include <cstdint>

namespace tessera {

struct RankSet {
  int32_t world = 0;  // ranks of all processes
  int32_t first = 0, count = 0;

  static RankSet all(int32_t world) { return {world, 0, world}; }
  bool is_whole() const { return count == world; }
  bool has(int32_t rank) const { return rank >= first && rank < first + count; }
  friend bool operator==(const RankSet&, const RankSet&) = default;
};

}  // namespace tessera
