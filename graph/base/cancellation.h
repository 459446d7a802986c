// Cancellation of long work, such as planning, from another thread. The work is done inside a CancelScope and
// passes cancellation points, which throw once the signal was raised; a C function turns that into
// kCancelled.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

namespace tessera {

// A signal that any thread and signal handlers may raise any number of times.
class CancelSignal {
 public:
  void raise() { raised_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t times_raised() const { return raised_.load(std::memory_order_relaxed); }

 private:
  static_assert(std::atomic<uint64_t>::is_always_lock_free, "a signal handler may not wait for a lock");
  std::atomic<uint64_t> raised_{0};
};

// While a scope exists, the calling thread's cancellation points heed `signal`, if
// raised after its construction. The signal must outlive it. The innermost scope counts.
class CancelScope {
 public:
  explicit CancelScope(const CancelSignal& signal);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  bool is_cancelled() const { return signal_.times_raised() != before_; }

 private:
  const CancelSignal& signal_;
  const uint64_t before_;
  const CancelScope* const outer_;
};

// Exception of a cancellation point; catch_status makes it kCancelled.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "cancelled, as asked by another thread"; }
};

// Throws Cancelled where the calling thread's work was cancelled. Loops whose length
// a file or a caller decides call it in every round; it costs a few instructions.
void cancellation_point();

}  // namespace tessera
