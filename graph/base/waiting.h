// Waiting between threads: a short spin, then sleep on a futex. Waits sleep so that ranks may outnumber
// cores.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace tessera {

// WaitWord: the variable that waiters watch. An int, because std::atomic::wait maps that onto a futex without
// a shared table.
using WaitWord = std::atomic<int>;

// Hints to the core that the thread polls.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls `done()` for at most 50 us, yielding the core between polls; returns its last value.
template <class Done>
bool spin_until(Done&& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause_core();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

// Returns once `word` no longer holds `old`: spins first when
// `may_spin` (ranks <= cores), then sleeps until notified.
inline void wait_while(const WaitWord& word, int old, bool may_spin) {
  const auto changed = [&] { return word.load(std::memory_order_acquire) != old; };
  if (changed() || (may_spin && spin_until(changed))) return;
  word.wait(old, std::memory_order_acquire);
}

}  // namespace tessera
