#include "parallel/lowering/arena.h"

#include <algorithm>
#include <numeric>

namespace tessera {

namespace {

// Placed buffers by stretch of time, so that only those that may meet a new one are looked at.
class Timeline {
 public:
  Timeline(std::span<const Lifetime> all, int32_t end)
      : all_(all), alive_(static_cast<size_t>(end / kStretch + 1)), begin_(alive_.size()) {}

  // The lowest end of the tightest gap among placed buffers that live at the same time.
  int64_t best_fit(size_t item, const std::vector<int64_t>& offsets) {
    const Lifetime& it = all_[item];
    met_.clear();
    const auto meet = [&](const std::vector<uint32_t>& others) {
      for (const uint32_t other : others) {
        const Lifetime& o = all_[other];
        if (o.first > it.last || o.last < it.first) continue;
        met_.emplace_back(offsets[other], offsets[other] + align_slot(o.bytes));
      }
    };
    // Each of them once: those that are there when it begins, and those that begin later.
    const int32_t first = it.first / kStretch, last = it.last / kStretch;
    meet(alive_[static_cast<size_t>(first)]);
    for (int32_t s = first + 1; s <= last; ++s) meet(begin_[static_cast<size_t>(s)]);
    std::ranges::sort(met_);
    int64_t end = 0, best = -1, best_gap = INT64_MAX;
    for (const auto& [from, to] : met_) {
      const int64_t gap = from - end;
      if (gap >= it.bytes && gap < best_gap) best = end, best_gap = gap;
      end = std::max(end, to);
    }
    return best >= 0 ? best : end;
  }

  void place(size_t item) {
    const int32_t first = all_[item].first / kStretch, last = all_[item].last / kStretch;
    begin_[static_cast<size_t>(first)].push_back(static_cast<uint32_t>(item));
    for (int32_t s = first; s <= last; ++s)
      alive_[static_cast<size_t>(s)].push_back(static_cast<uint32_t>(item));
  }

 private:
  static constexpr int32_t kStretch = 32;
  std::span<const Lifetime> all_;
  std::vector<std::vector<uint32_t>> alive_, begin_;  // by stretch: those that live in it, that begin in it
  std::vector<std::pair<int64_t, int64_t>> met_;
};

// Ends early, with that much, where it would take `beat` bytes or more.
ArenaLayout place_in_order(std::span<const Lifetime> all, const std::vector<size_t>& order, int32_t end,
                           int64_t beat) {
  ArenaLayout layout;
  layout.offsets.assign(all.size(), 0);
  Timeline timeline(all, end);
  for (const size_t item : order) {
    if (all[item].bytes == 0) continue;
    layout.offsets[item] = timeline.best_fit(item, layout.offsets);
    timeline.place(item);
    layout.bytes = std::max(layout.bytes, layout.offsets[item] + all[item].bytes);
    if (layout.bytes >= beat) break;
  }
  return layout;
}

}  // namespace

int64_t max_live_bytes(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<int32_t, int64_t>>
      events;  // births before deaths of the same moment: both ends count
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
  // Larger keys first; equal ones in order of birth.
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
    if (!best.offsets.empty() && best.bytes <= bound) return;
    const int64_t beat = best.offsets.empty() ? INT64_MAX : best.bytes;
    ArenaLayout layout = place_in_order(lifetimes, order, end, beat);
    if (best.offsets.empty() || layout.bytes < best.bytes) best = std::move(layout);
  };
  attempt(by([&](size_t i) { return size(i) * span(i); }));
  attempt(by([&](size_t i) { return std::pair(size(i), span(i)); }));
  attempt(by([&](size_t i) { return std::pair(span(i), size(i)); }));
  attempt(by([&](size_t i) { return std::pair(int64_t{-lifetimes[i].first}, span(i)); }));
  attempt(by([&](size_t i) { return std::pair(int64_t{lifetimes[i].last}, span(i)); }));
  if (best.offsets.empty()) best.offsets.assign(lifetimes.size(), 0);
  return best;
}

}  // namespace tessera
