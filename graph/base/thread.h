// Thread: a thread of this library. Its stack has a size of its own: the process's
// default (ulimit -s) may be too small, or take address space beyond a limit.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <utility>

namespace tessera {

// Twenty times the needs of our own calls; libraries of plugins have the rest.
inline constexpr size_t kThreadStackBytes = size_t{1} << 20;
inline constexpr size_t kThreadGuardBytes = size_t{64} << 10;

class Thread {
 public:
  Thread() = default;
  // Runs `body`, which must not throw. Throws std::system_error where the system refuses a thread.
  explicit Thread(std::function<void()> body);
  Thread(Thread&& other) noexcept
      : thread_(other.thread_), joinable_(std::exchange(other.joinable_, false)) {}
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = other.thread_;
    joinable_ = std::exchange(other.joinable_, false);
    return *this;
  }
  ~Thread() { join(); }

  bool joinable() const { return joinable_; }
  // Waits for its end; does nothing if there is no thread.
  void join() noexcept;

 private:
  pthread_t thread_{};
  bool joinable_ = false;
};

}  // namespace tessera
