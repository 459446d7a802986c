// CoreArbiter: lets runs of inference and of training take turns on the cores of one runtime, by a declared share
// (turn_ledger.h). Without a share a turn is one atomic load. Only order and time depend on it: runs compute the same bits, also
// where two overlap. One object per registry; any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "runtime/turn_ledger.h"

namespace tessera {

class CoreArbiter {
 public:
  using Clock = std::function<CoreInstant()>;
  static CoreInstant system_clock();
  explicit CoreArbiter(Clock clock = system_clock) : clock_(std::move(clock)) {}

  // inference_share: 0 to 1; nullopt: no turns. Runs in progress go on; those that wait are judged again.
  void set_share(std::optional<double> inference_share);
  bool is_on() const { return is_on_.load(std::memory_order_acquire); }

  struct Report {
    std::optional<double> inference_share;
    CoreUsage inference, training;
    int64_t longest_wait_ns = 0, most_batches_waited = 0;  // of runs of inference
  };
  Report report();

  // Turn: one run. The run's threads call `pass`; of a run of several ranks all wait at their next `pass` once one of them
  // has let others go first, and they go on together.
  class Turn {
   public:
    // Waits for the turn; or, after `wake`, until `stop` is set. No wait within another turn of the thread.
    Turn(CoreArbiter& arbiter, CoreSide side, const std::atomic<bool>& stop);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Called between instructions of a run of training. begins_batch: at the first of a micro-batch.
    void pass(bool begins_batch) {
      if (is_counted_ && (begins_batch || !holds_.load(std::memory_order_relaxed) || arbiter_.is_yield_due())) pass_slowly(begins_batch);
    }
    // Ends the turn while the run waits for what another's run may hold, until `resume` waits for the next one.
    void leave();
    void resume();

   private:
    void pass_slowly(bool begins_batch);
    void end(const CoreInstant& now);
    void wait(std::unique_lock<std::mutex>& lock);

    CoreArbiter& arbiter_;
    const CoreSide side_;
    const std::atomic<bool>& stop_;
    bool is_counted_ = false;          // false: begun without a share, or within another turn
    std::atomic<bool> holds_{false};   // the turn
    std::optional<TurnLedger::Ticket> ticket_;  // while it waits for the turn
  };
  void wake();

 private:
  bool is_yield_due() const;
  void publish();

  const Clock clock_;
  std::atomic<bool> is_on_{false};
  std::atomic<int64_t> yield_at_{TurnLedger::kNever};
  std::mutex mutex_;  // guards the ledger, and the tickets of turns
  std::condition_variable changed_;
  TurnLedger ledger_;
};

}  // namespace tessera
