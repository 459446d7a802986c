#include "parallel/sharding/zigzag.h"

#include <algorithm>

namespace tessera {

std::vector<Range> zigzag_ranges(int64_t extent, int64_t unit, int32_t parts, int32_t part, Range local) {
  // First halves in rank order, then second halves in reverse.
  const auto shard = [&](int32_t rank) { return split_range({0, extent}, unit, parts, rank); };
  const auto first_half = [&](int32_t rank) { return (shard(rank).size() + 1) / 2; };
  int64_t first_begin = 0, second_begin = 0;
  for (int32_t rank = 0; rank < parts; ++rank) {
    if (rank < part) first_begin += first_half(rank);
    second_begin += first_half(rank);
    if (rank > part) second_begin += shard(rank).size() - first_half(rank);
  }
  const Range mine = shard(part);
  const int64_t middle = mine.begin + first_half(part);
  std::vector<Range> ranges;
  const auto add = [&](int64_t begin, int64_t end, int64_t shift) {
    begin = std::max(begin, local.begin);
    end = std::min(end, local.end);
    if (begin >= end) return;
    if (!ranges.empty() && ranges.back().end == begin + shift)
      ranges.back().end = end + shift;
    else
      ranges.push_back({begin + shift, end + shift});
  };
  add(mine.begin, middle, first_begin - mine.begin);
  add(middle, mine.end, second_begin - middle);
  return ranges;
}

}  // namespace tessera
