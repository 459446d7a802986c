#include "engine/training/adapter_turns.h"

#include <algorithm>

namespace tessera {

void AdapterTurns::leave(int64_t adapter) {
  std::erase(ring_, adapter);
  deficits_.erase(adapter);
}

void AdapterTurns::pass_on() {
  if (!ring_.empty()) std::rotate(ring_.begin(), ring_.begin() + 1, ring_.end());
}

std::vector<AdapterTurns::Share> AdapterTurns::take(int64_t room, const std::function<int64_t(int64_t)>& wanted) {
  std::vector<Share> shares;
  std::vector<int64_t> left;
  for (const int64_t adapter : ring_) {
    const int64_t rows = wanted(adapter);
    if (rows == 0) continue;
    shares.push_back({adapter, 0});
    left.push_back(rows);
  }
  if (shares.empty()) return shares;
  const int64_t quantum = std::max<int64_t>(1, room / static_cast<int64_t>(shares.size()));
  int64_t last = shares.front().adapter;  // the last that got rows
  for (int64_t waiting = static_cast<int64_t>(shares.size()); room > 0 && waiting > 0;) {
    for (size_t i = 0; i < shares.size() && room > 0; ++i) {
      if (left[i] == 0) continue;
      int64_t& deficit = deficits_[shares[i].adapter];
      deficit += quantum;
      const int64_t rows = std::min({deficit, left[i], room});
      shares[i].rows += rows;
      left[i] -= rows, deficit -= rows, room -= rows;
      last = shares[i].adapter;
      if (left[i] == 0) deficit = 0, --waiting;
    }
  }
  std::erase_if(shares, [](const Share& it) { return it.rows == 0; });
  // The next batch begins after it.
  while (ring_.front() != last) pass_on();
  pass_on();
  return shares;
}

}  // namespace tessera
