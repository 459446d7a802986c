#include "runtime/on_call_threads.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "graph/base/waiting.h"

namespace tessera {

namespace {

// futex: std::atomic waits have no timeout.
long futex(const std::atomic<int>& word, int operation, int value, const timespec* timeout) {
  static_assert(sizeof word == sizeof(int));
  return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

}  // namespace

OnCallThreads::OnCallThreads(int32_t count, std::function<void(int32_t)> task, bool may_spin,
                             std::function<void(int32_t)> started, std::chrono::nanoseconds idle)
    : task_(std::move(task)),
      may_spin_(may_spin),
      started_(std::move(started)),
      idle_(idle),
      threads_(static_cast<size_t>(count)),
      is_running_(static_cast<size_t>(count), false) {}

OnCallThreads::~OnCallThreads() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    calls_.fetch_add(1);
  }
  futex(calls_, FUTEX_WAKE, INT_MAX, nullptr);
  for (Thread& thread : threads_) thread.join();
}

void OnCallThreads::call() {
  {
    const std::lock_guard lock(mutex_);
    if (running_ != static_cast<int32_t>(threads_.size())) start_missing();
    calls_.fetch_add(1);
  }
  // A sleeper counts itself before it looks at `calls_` for the last time.
  if (sleepers_.load() > 0) futex(calls_, FUTEX_WAKE, INT_MAX, nullptr);
}

void OnCallThreads::start_missing() {
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (is_running_[i]) continue;
    // A thread that has ended has left the mutex, or will at once: it is joined.
    threads_[i] = Thread([this, i, seen = calls_.load()] {
      if (started_) started_(static_cast<int32_t>(i));
      loop(static_cast<int32_t>(i), seen);
    });
    is_running_[i] = true;
    ++running_;
  }
}

void OnCallThreads::loop(int32_t thread, int seen) {
  for (;;) {
    if (!wait_for_call(seen)) {
      const std::lock_guard lock(mutex_);
      if (calls_.load() != seen) continue;
      is_running_[static_cast<size_t>(thread)] = false;
      --running_;
      return;
    }
    seen = calls_.load();
    if (closing_) return;
    task_(thread);
  }
}

// False after the idle time without a call.
bool OnCallThreads::wait_for_call(int seen) {
  const auto is_called = [&] { return calls_.load() != seen; };
  if (is_called() || (may_spin_ && spin_until(is_called))) return true;
  const timespec limit{static_cast<time_t>(idle_.count() / 1'000'000'000),
                       static_cast<long>(idle_.count() % 1'000'000'000)};
  sleepers_.fetch_add(1);
  while (!is_called())
    if (futex(calls_, FUTEX_WAIT, seen, &limit) != 0 && errno == ETIMEDOUT) break;
  sleepers_.fetch_sub(1);
  return is_called();
}

}  // namespace tessera
