// Barrier: a meeting of a fixed number of threads, again and again, which can be aborted. Waits sleep, so that
// threads may outnumber cores.
#pragma once

#include <atomic>
#include <cstdint>

#include "graph/base/waiting.h"

namespace tessera {

class Barrier {
 public:
  // `may_spin`: see wait_while.
  Barrier(int32_t members, bool may_spin) : members_(members), may_spin_(may_spin) {}

  // Waits for all members; false after an abort.
  bool wait() {
    const int phase = phase_.load(std::memory_order_acquire);
    if (is_aborted()) return false;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.fetch_add(1, std::memory_order_acq_rel);
      phase_.notify_all();
    } else {
      wait_while(phase_, phase, may_spin_);
    }
    return !is_aborted();
  }

  // Ends all waits, of now and later; from any thread.
  void abort() {
    aborted_.store(true, std::memory_order_release);
    phase_.fetch_add(1, std::memory_order_acq_rel);
    phase_.notify_all();
  }
  bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }

 private:
  const int32_t members_;
  const bool may_spin_;
  WaitWord phase_{0};
  std::atomic<int32_t> arrived_{0};
  std::atomic<bool> aborted_{false};
};

}  // namespace tessera
