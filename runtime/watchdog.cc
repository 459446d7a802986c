#include "runtime/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tessera {

Watchdog::Watchdog(double seconds, std::function<Sight()> look, std::function<void()> bark)
    : look_(std::move(look)), bark_(std::move(bark)), thread_([this, seconds] { watch(seconds); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  closing_changed_.notify_all();
  thread_.join();
}

// Counts looks rather than time: a process that was stopped for a while has not stood still.
void Watchdog::watch(double seconds) {
  const double period_s = std::clamp(seconds / 8, 0.001, 1.0);
  const auto limit = static_cast<int64_t>(std::ceil(seconds / period_s));
  int64_t looks = 0, done = -1;
  std::unique_lock lock(mutex_);
  while (
      !closing_changed_.wait_for(lock, std::chrono::duration<double>(period_s), [&] { return closing_; })) {
    const Sight sight = look_();
    const bool stands = sight.running && !sight.computes && sight.communicates && sight.done == done;
    done = sight.done;
    looks = stands ? looks + 1 : 0;
    if (looks != limit) continue;
    bark_();
  }
}

}  // namespace tessera
