// Watchdog: detects stalled runs: for a given time no rank computes, at
// least one is inside a communicator, and nothing finishes. A long kernel
// is no stall. Its thread starts with the first run and ends when idle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "graph/base/thread.h"

namespace tessera {

class Watchdog {
 public:
  // Progress: the activity of all ranks at one poll.
  struct Progress {
    bool running = false, computes = false, communicates = false;
    int64_t done = 0;  // grows with every instruction, over all runs
  };
  // Both are called on the watchdog's thread, on_stall once per stall.
  Watchdog(double seconds, std::function<Progress()> poll, std::function<void()> on_stall);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Call before a run. Throws std::system_error if the system refuses a thread.
  void expect_run();

 private:
  void watch();

  const double seconds_;
  std::function<Progress()> poll_;
  std::function<void()> on_stall_;
  std::mutex mutex_;
  std::condition_variable closing_changed_;
  bool closing_ = false, is_watching_ = false, is_expecting_ = false;  // guarded by mutex_
  Thread thread_;
};

}  // namespace tessera
