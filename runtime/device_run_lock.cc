#include "runtime/device_run_lock.h"

#include <algorithm>

namespace tessera {

DeviceRunLock::Guard::Guard(DeviceRunLock& lock, const tsr_backend_api& api,
                            std::span<const int32_t> ordinals, const std::atomic<bool>& stop)
    : lock_(lock) {
  std::unique_lock held(lock.mutex_);
  mine_ = lock.claims_.insert(lock.claims_.end(), Claim{&api, ordinals});
  lock.changed_.wait(held, [&] { return lock.is_next(mine_) || stop.load(std::memory_order_acquire); });
}

DeviceRunLock::Guard::~Guard() {
  const std::lock_guard held(lock_.mutex_);
  lock_.claims_.erase(mine_);
  lock_.changed_.notify_all();
}

void DeviceRunLock::wake() {
  const std::lock_guard held(mutex_);
  changed_.notify_all();
}

bool DeviceRunLock::is_next(Claims::iterator mine) const {
  return std::all_of(claims_.begin(), Claims::const_iterator(mine), [&](const Claim& before) {
    return before.api != mine->api ||
           std::ranges::find_first_of(before.ordinals, mine->ordinals) == before.ordinals.end();
  });
}

}  // namespace tessera
