#include "runtime/device_turns.h"

#include <algorithm>

namespace tessera {

DeviceTurns::Turn::Turn(DeviceTurns& turns, const tsr_backend_api& api, std::span<const int32_t> ordinals,
                        const std::atomic<bool>& stop)
    : turns_(turns) {
  std::unique_lock lock(turns.mutex_);
  mine_ = turns.claims_.insert(turns.claims_.end(), Claim{&api, ordinals});
  turns.changed_.wait(lock, [&] { return turns.is_next(mine_) || stop.load(std::memory_order_acquire); });
}

DeviceTurns::Turn::~Turn() {
  const std::lock_guard lock(turns_.mutex_);
  turns_.claims_.erase(mine_);
  turns_.changed_.notify_all();
}

void DeviceTurns::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool DeviceTurns::is_next(Claims::iterator mine) const {
  return std::all_of(claims_.begin(), Claims::const_iterator(mine), [&](const Claim& before) {
    return before.api != mine->api ||
           std::ranges::find_first_of(before.ordinals, mine->ordinals) == before.ordinals.end();
  });
}

}  // namespace tessera
