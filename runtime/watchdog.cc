#include "runtime/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace tessera {

namespace {

constexpr int64_t kIdleLooks = 4;  // polls without a run after which the thread ends

}  // namespace

Watchdog::Watchdog(double seconds, std::function<Progress()> poll, std::function<void()> on_stall)
    : seconds_(seconds), poll_(std::move(poll)), on_stall_(std::move(on_stall)) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  closing_changed_.notify_all();
  thread_.join();
}

void Watchdog::expect_run() {
  const std::lock_guard lock(mutex_);
  is_expecting_ = true;
  if (is_watching_) return;
  // A thread that has ended has left the mutex, or will at once: it is joined.
  thread_ = Thread([this] { watch(); });
  is_watching_ = true;
}

// Counts polls, not time: a stopped process has not stalled.
void Watchdog::watch() {
  const double period_s = std::clamp(seconds_ / 8, 0.001, 1.0);
  const auto limit = static_cast<int64_t>(std::ceil(seconds_ / period_s));
  int64_t polls = 0, idle_looks = 0, done = -1;
  std::unique_lock lock(mutex_);
  while (
      !closing_changed_.wait_for(lock, std::chrono::duration<double>(period_s), [&] { return closing_; })) {
    const Progress now = poll_();
    idle_looks = now.running || std::exchange(is_expecting_, false) ? 0 : idle_looks + 1;
    if (idle_looks == kIdleLooks) {
      is_watching_ = false;
      return;
    }
    const bool is_stalled = now.running && !now.computes && now.communicates && now.done == done;
    done = now.done;
    polls = is_stalled ? polls + 1 : 0;
    if (polls != limit) continue;
    on_stall_();
  }
}

}  // namespace tessera
