#include "runtime/core_arbiter.h"

#include <time.h>

#include <chrono>
#include <utility>

namespace tessera {

namespace {
thread_local const void* innermost_turn = nullptr;  // the thread's counted turn
}  // namespace

CoreInstant CoreArbiter::system_clock() {
  const auto read = [](clockid_t clock) {
    timespec now{};
    (void)clock_gettime(clock, &now);
    return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  };
  return {read(CLOCK_MONOTONIC), read(CLOCK_PROCESS_CPUTIME_ID)};
}

void CoreArbiter::set_share(std::optional<double> inference_share) {
  const std::lock_guard lock(mutex_);
  ledger_.set_share(inference_share, clock_());
  is_on_.store(inference_share.has_value(), std::memory_order_release);
  publish();
}

CoreArbiter::Report CoreArbiter::report() {
  const std::lock_guard lock(mutex_);
  ledger_.advance(clock_());
  return {ledger_.share(), ledger_.usage(CoreSide::kInference), ledger_.usage(CoreSide::kTraining), ledger_.longest_wait_ns(),
          ledger_.most_batches_waited()};
}

void CoreArbiter::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool CoreArbiter::is_yield_due() const {
  const int64_t at = yield_at_.load(std::memory_order_relaxed);
  if (at == TurnLedger::kNever) return false;
  return clock_().wall_ns >= at;
}

void CoreArbiter::publish() {
  yield_at_.store(ledger_.yield_at_ns(), std::memory_order_relaxed);
  changed_.notify_all();
}

CoreArbiter::Turn::Turn(CoreArbiter& arbiter, CoreSide side, const std::atomic<bool>& stop)
    : arbiter_(arbiter), side_(side), stop_(stop) {
  if (side == CoreSide::kNone || !arbiter.is_on() || innermost_turn != nullptr) return;
  is_counted_ = true;
  innermost_turn = this;
  std::unique_lock lock(arbiter_.mutex_);
  ticket_ = arbiter_.ledger_.arrive(side_, arbiter_.clock_());
  arbiter_.publish();
  wait(lock);
}

CoreArbiter::Turn::~Turn() {
  if (!is_counted_) return;
  innermost_turn = nullptr;
  const std::lock_guard lock(arbiter_.mutex_);
  if (holds_) end(arbiter_.clock_());
}

void CoreArbiter::Turn::end(const CoreInstant& now) {
  holds_ = false;
  arbiter_.ledger_.end(side_, now);
  arbiter_.publish();
}

// Any of the run's threads takes the turn for all of them.
void CoreArbiter::Turn::wait(std::unique_lock<std::mutex>& lock) {
  TurnLedger& ledger = arbiter_.ledger_;
  while (!holds_) {
    const CoreInstant now = arbiter_.clock_();
    if (stop_.load(std::memory_order_acquire)) {
      if (ticket_) ledger.give_up(*ticket_, now);
      ticket_.reset();
      return arbiter_.publish();
    }
    if (ticket_ && ledger.may_begin(*ticket_, now)) {
      ledger.begin(*ticket_, now);
      ticket_.reset();
      holds_ = true;
      return arbiter_.publish();
    }
    const int64_t reserved = ledger.reserved_until_ns() - now.wall_ns;
    if (side_ == CoreSide::kTraining && reserved > 0)
      arbiter_.changed_.wait_for(lock, std::chrono::nanoseconds(reserved));
    else
      arbiter_.changed_.wait(lock);
  }
}

void CoreArbiter::Turn::pass_slowly(bool begins_batch) {
  if (side_ != CoreSide::kTraining) return;
  std::unique_lock lock(arbiter_.mutex_);
  if (holds_) {
    const CoreInstant now = arbiter_.clock_();
    if (!arbiter_.ledger_.yields(begins_batch, now)) {
      arbiter_.yield_at_.store(arbiter_.ledger_.yield_at_ns(), std::memory_order_relaxed);
      return;
    }
    end(now);
    ticket_ = arbiter_.ledger_.arrive(side_, now);
    arbiter_.publish();
  }
  wait(lock);
}

void CoreArbiter::Turn::leave() {
  if (!is_counted_) return;
  const std::lock_guard lock(arbiter_.mutex_);
  const CoreInstant now = arbiter_.clock_();
  if (holds_) return end(now);
  if (!ticket_) return;
  arbiter_.ledger_.give_up(*ticket_, now);  // no thread of the run takes the turn before `resume`
  ticket_.reset();
}

void CoreArbiter::Turn::resume() {
  if (!is_counted_) return;
  std::unique_lock lock(arbiter_.mutex_);
  if (!holds_ && !ticket_) {
    ticket_ = arbiter_.ledger_.arrive(side_, arbiter_.clock_());
    arbiter_.publish();
  }
  wait(lock);
}

}  // namespace tessera
