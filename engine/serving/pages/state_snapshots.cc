#include "engine/serving/pages/state_snapshots.h"

#include <algorithm>

namespace tessera {

StateSnapshots::StateSnapshots(int64_t first_row, int64_t count, int64_t page_size) : page_size_(page_size) {
  for (int64_t row = first_row; row < first_row + count; ++row) order_.push_back(static_cast<int32_t>(row));
}

std::optional<StateSnapshots::Found> StateSnapshots::find(Content root, std::span<const Content> contents,
                                                          std::span<const int32_t> tokens) {
  for (auto pages = std::ssize(contents); pages >= 0 && !rows_.empty(); --pages) {
    const Content before = pages == 0 ? root : contents[static_cast<size_t>(pages) - 1];
    const auto rest = tokens.subspan(static_cast<size_t>(pages * page_size_));
    std::optional<Found> longest;
    for (auto at = rows_.lower_bound({before, {}}); at != rows_.end() && at->first.first == before; ++at) {
      const std::vector<int32_t>& known = at->first.second;
      const int64_t size = pages * page_size_ + std::ssize(known);
      if (known.size() > rest.size() || !std::ranges::equal(known, rest.first(known.size()))) continue;
      if (!longest || size > longest->size) longest = Found{at->second, size};
    }
    if (!longest) continue;
    order_.splice(order_.end(), order_, std::ranges::find(order_, longest->row));
    return longest;
  }
  return std::nullopt;
}

std::optional<int32_t> StateSnapshots::take(Content before, std::span<const int32_t> rest) {
  Key key{before, {rest.begin(), rest.end()}};
  if (rows_.contains(key)) return std::nullopt;
  const auto is_free = [this](int32_t row) { return std::ranges::find(pinned_, row) == pinned_.end(); };
  const auto at = std::ranges::find_if(order_, is_free);
  if (at == order_.end()) return std::nullopt;
  const int32_t row = *at;
  order_.splice(order_.end(), order_, at);
  if (const auto known = known_as_.find(row); known != known_as_.end()) {
    rows_.erase(known->second);
    known->second = key;
  } else {
    known_as_.emplace(row, key);
  }
  rows_.emplace(std::move(key), row);
  return row;
}

void StateSnapshots::forget(int32_t row) {
  const auto known = known_as_.find(row);
  if (known == known_as_.end()) return;
  rows_.erase(known->second);
  known_as_.erase(known);
}

void StateSnapshots::pin(int32_t row) { pinned_.push_back(row); }

void StateSnapshots::forget_all() {
  rows_.clear();
  known_as_.clear();
}

}  // namespace tessera
