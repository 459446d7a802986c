// OnCallThreads: threads that do a task each whenever they are called. They start with the first call and end
// when none has come for a while, so an idle owner has no threads.
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
  // `task(i)` runs on thread i of `count` and must not throw. `may_spin`: threads spin before they sleep, so
  // that a call soon after the last finds them awake. `started(i)` is the first that a thread does. `idle`: a thread
  // ends when no call has come for so long.
  OnCallThreads(int32_t count, std::function<void(int32_t)> task, bool may_spin,
                std::function<void(int32_t)> started = {},
                std::chrono::nanoseconds idle = std::chrono::seconds(1));
  // Waits for tasks in progress; those that have not begun are left out.
  ~OnCallThreads();
  OnCallThreads(const OnCallThreads&) = delete;
  OnCallThreads& operator=(const OnCallThreads&) = delete;

  // Every thread does its task once. One caller at a time, and not before the tasks of the last call are
  // done, which tasks tell in a way of their own. Throws std::system_error where the system refuses a thread;
  // then no task begins.
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
  std::mutex mutex_;  // guards the three below, and the end of threads against calls
  std::vector<Thread> threads_;
  std::vector<bool> is_running_;  // by thread: false before its beginning and from its end on
  int32_t running_ = 0;
  std::atomic<bool> closing_{false};
};

}  // namespace tessera
