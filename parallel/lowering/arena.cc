#include "parallel/lowering/arena.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "graph/base/cancellation.h"

namespace tessera {

namespace {

struct Extent {
  int64_t from = 0, to = 0;  // in units of kSlotAlignment
};

// A layout within this fraction of the lower bound is not improved.
constexpr int64_t kClose = 1000;

// ExtentSort: sorts extents by begin, in any order of equal ones, by radix
// passes; comparisons would dominate the placement of thousands of buffers.
class ExtentSort {
 public:
  // `most`: the largest begin.
  void operator()(std::vector<Extent>& extents, int64_t most) {
    if (extents.size() < kFew) return void(std::ranges::sort(extents, {}, &Extent::from));
    const int bits = std::bit_width(static_cast<uint64_t>(most));
    const int passes = (bits + kDigit - 1) / kDigit, digit = passes > 0 ? (bits + passes - 1) / passes : 0;
    const int64_t mask = (int64_t{1} << digit) - 1;
    sorted_.resize(extents.size());
    for (int pass = 0; pass < passes; ++pass) {
      const int shift = pass * digit;
      starts_.assign(static_cast<size_t>(mask) + 2, 0);
      for (const Extent& it : extents) ++starts_[static_cast<size_t>((it.from >> shift) & mask) + 1];
      std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
      for (const Extent& it : extents)
        sorted_[starts_[static_cast<size_t>((it.from >> shift) & mask)]++] = it;
      extents.swap(sorted_);
    }
  }

 private:
  static constexpr size_t kFew = 128;
  static constexpr int kDigit = 11;
  std::vector<Extent> sorted_;
  std::vector<uint32_t> starts_;
};

// Occupied: a union of extents; adjacent ones are merged.
class Occupied {
 public:
  void add(Extent extent) {
    const auto first = std::ranges::lower_bound(parts_, extent.from, {}, &Extent::to);
    auto last = first;
    for (; last != parts_.end() && last->from <= extent.to; ++last)
      extent = {std::min(extent.from, last->from), std::max(extent.to, last->to)};
    if (first == last) {
      parts_.insert(first, extent);
    } else {
      *first = extent;
      parts_.erase(first + 1, last);
    }
  }
  const std::vector<Extent>& parts() const { return parts_; }

 private:
  std::vector<Extent> parts_;  // sorted, with gaps between them
};

// Timeline: occupied extents over time, as a tree over stretches of time, so that
// only extents that may overlap a new buffer are examined, and adjacent ones once.
class Timeline {
 public:
  Timeline(std::span<const Lifetime> all, int32_t end)
      : all_(all),
        stretches_(std::bit_ceil(static_cast<uint32_t>(end / kStretch + 1))),
        covered_(2 * static_cast<size_t>(stretches_)),
        inside_(covered_.size()),
        partly_(stretches_) {}

  // Best fit: the lowest end of the tightest gap between buffers alive at the same time.
  int64_t best_fit(size_t item) {
    const Lifetime& it = all_[item];
    met_.clear();
    meet(it, {1, 0, stretches_});
    sort_(met_, highest_);
    const int64_t wanted = align_slot(it.bytes) / kSlotAlignment;
    int64_t end = 0, best = -1, best_gap = INT64_MAX;
    for (const auto& [from, to] : met_) {
      const int64_t gap = from - end;
      if (gap >= wanted && gap < best_gap) best = end, best_gap = gap;
      end = std::max(end, to);
    }
    return (best >= 0 ? best : end) * kSlotAlignment;
  }

  void place(size_t item, int64_t offset) {
    const Lifetime& it = all_[item];
    const int64_t from = offset / kSlotAlignment;
    highest_ = std::max(highest_, from);
    occupy({{from, from + align_slot(it.bytes) / kSlotAlignment}, it.first, it.last}, {1, 0, stretches_});
  }

 private:
  static constexpr int32_t kStretch = 32;
  struct Placed {
    Extent extent;
    int32_t first = 0, last = 0;
  };
  // Part: a node of the tree over the stretches [begin, end).
  struct Part {
    size_t node;
    uint32_t begin, end;
    int32_t first() const { return static_cast<int32_t>(begin) * kStretch; }
    int32_t last() const { return static_cast<int32_t>(end) * kStretch - 1; }
    bool is_stretch() const { return end - begin == 1; }
    Part left() const { return {2 * node, begin, begin + (end - begin) / 2}; }
    Part right() const { return {2 * node + 1, begin + (end - begin) / 2, end}; }
  };

  void meet(const Lifetime& it, const Part& part) {
    if (it.last < part.first() || it.first > part.last()) return;
    const auto take = [&](const Occupied& occupied) {
      met_.insert(met_.end(), occupied.parts().begin(), occupied.parts().end());
    };
    take(covered_[part.node]);
    if (it.first <= part.first() && it.last >= part.last()) return take(inside_[part.node]);
    if (!part.is_stretch()) return meet(it, part.left()), meet(it, part.right());
    for (const Placed& other : partly_[part.begin])
      if (other.first <= it.last && other.last >= it.first) met_.push_back(other.extent);
  }

  void occupy(const Placed& it, const Part& part) {
    if (it.last < part.first() || it.first > part.last()) return;
    if (it.first <= part.first() && it.last >= part.last()) return covered_[part.node].add(it.extent);
    inside_[part.node].add(it.extent);
    if (part.is_stretch()) return partly_[part.begin].push_back(it);
    occupy(it, part.left());
    occupy(it, part.right());
  }

  std::span<const Lifetime> all_;
  const uint32_t stretches_;
  std::vector<Occupied> covered_,
      inside_;  // by node: occupied for all of its time; for some of it, merged from child nodes
  std::vector<std::vector<Placed>> partly_;  // by stretch: occupied for some of its time
  std::vector<Extent> met_;
  ExtentSort sort_;
  int64_t highest_ = 0;  // the largest begin of any extent
};

// Stops early with `beat` bytes or more.
ArenaLayout place_in_order(std::span<const Lifetime> all, const std::vector<size_t>& order, int32_t end,
                           int64_t beat) {
  ArenaLayout layout;
  layout.offsets.assign(all.size(), 0);
  Timeline timeline(all, end);
  for (const size_t item : order) {
    cancellation_point();
    if (all[item].bytes == 0) continue;
    layout.offsets[item] = timeline.best_fit(item);
    timeline.place(item, layout.offsets[item]);
    layout.bytes = std::max(layout.bytes, layout.offsets[item] + all[item].bytes);
    if (layout.bytes >= beat) break;
  }
  return layout;
}

}  // namespace

int64_t max_live_bytes(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<int32_t, int64_t>>
      events;  // births before deaths of the same moment, since lifetimes are inclusive
  for (const Lifetime& it : lifetimes) {
    events.emplace_back(it.first, it.bytes);
    events.emplace_back(it.last + 1, -it.bytes);
  }
  std::ranges::sort(events);
  int64_t live = 0, most = 0;
  for (const auto& [time, change] : events) most = std::max(most, live += change);
  return most;
}

ArenaLayout layout_arena(std::span<const Lifetime> lifetimes) {
  int32_t end = 0;
  for (const Lifetime& it : lifetimes) end = std::max(end, it.last);
  const int64_t bound = max_live_bytes(lifetimes);

  const auto span = [&](size_t i) { return int64_t{lifetimes[i].last} - lifetimes[i].first + 1; };
  const auto size = [&](size_t i) { return lifetimes[i].bytes; };
  // Larger keys first; ties in order of birth.
  const auto by = [&](auto key) {
    std::vector<size_t> order(lifetimes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) {
      const auto ka = key(a), kb = key(b);
      return ka != kb ? ka > kb : lifetimes[a].first < lifetimes[b].first;
    });
    return order;
  };
  ArenaLayout best;
  const auto attempt = [&](const std::vector<size_t>& order) {
    if (!best.offsets.empty() && best.bytes - bound <= bound / kClose) return;
    const int64_t beat = best.offsets.empty() ? INT64_MAX : best.bytes;
    ArenaLayout layout = place_in_order(lifetimes, order, end, beat);
    if (best.offsets.empty() || layout.bytes < best.bytes) best = std::move(layout);
  };
  // Buffers of equal size reuse each other's places, which also makes this order the fastest.
  attempt(by([&](size_t i) { return std::pair(size(i), span(i)); }));
  attempt(by([&](size_t i) { return size(i) * span(i); }));
  attempt(by([&](size_t i) { return std::pair(span(i), size(i)); }));
  attempt(by([&](size_t i) { return std::pair(int64_t{-lifetimes[i].first}, span(i)); }));
  attempt(by([&](size_t i) { return std::pair(int64_t{lifetimes[i].last}, span(i)); }));
  if (best.offsets.empty()) best.offsets.assign(lifetimes.size(), 0);
  return best;
}

}  // namespace tessera
