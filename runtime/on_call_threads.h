// OnCallThreads: threads that each run a task at every call. They start with
// the first call and end after an idle time, so an idle owner has no threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "graph/base/thread.h"

namespace tessera {

class OnCallThreads {
 public:
  // `task(i)` runs on thread i of `count` and must not throw. `may_spin`: threads spin
  // before they sleep, so that they are awake for a call soon after the last. `started(i)`
  // runs first on each thread. `idle`: time without a call after which a thread ends.
  OnCallThreads(int32_t count, std::function<void(int32_t)> task, bool may_spin,
                std::function<void(int32_t)> started = {},
                std::chrono::nanoseconds idle = std::chrono::seconds(1));
  // Waits for running tasks; tasks that have not begun are dropped.
  ~OnCallThreads();
  OnCallThreads(const OnCallThreads&) = delete;
  OnCallThreads& operator=(const OnCallThreads&) = delete;

  // Every thread runs its task once. One caller at a time, after the
  // previous tasks are done, which the tasks signal themselves. Throws
  // std::system_error if the system refuses a thread; then no task begins.
  void call();

 private:
  void start_missing();
  void loop(int32_t thread, int seen);
  bool wait_for_call(int seen);

  const std::function<void(int32_t)> task_;
  const bool may_spin_;
  const std::function<void(int32_t)> started_;
  const std::chrono::nanoseconds idle_;
  std::atomic<int> calls_{0}, sleepers_{0};
  std::mutex mutex_;  // guards the three below, and thread ends against calls
  std::vector<Thread> threads_;
  std::vector<bool> is_running_;  // by thread, from its start to its end
  int32_t running_ = 0;
  std::atomic<bool> closing_{false};
};

}  // namespace tessera
