#include "runtime/turn_ledger.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

constexpr CoreSide kInference = CoreSide::kInference, kTraining = CoreSide::kTraining;

// Debt at which training yields within a micro-batch: a switch costs some 50 us, so 1 % of a turn.
constexpr double kDebtNs = 5e6;
// Most of the balance: what is owed beyond is forgotten, so that a past imbalance does not starve a side for longer.
constexpr double kMostNs = 2e9;
// A side that was away for this long comes back with a balance of 0.
constexpr int64_t kForgottenNs = 1'000'000'000;
// Gaps: reserved are 4 of them, at least the first bound; from the second on the steps are no steady work; longer ones count as the third.
constexpr double kLeastGapNs = 1e6, kMostGapNs = 1e7, kLongestGapNs = 2e7;

}  // namespace

void TurnLedger::set_share(std::optional<double> inference_share, const CoreInstant& now) {
  advance(now);
  share_ = inference_share;
  balance_ = 0;
  reserved_until_ = 0;
  schedule_yield(now);
}

// Charges the time since the last event. Time of one side counts in the balance while the other waits.
void TurnLedger::advance(const CoreInstant& now) {
  const int64_t wall = std::max<int64_t>(0, now.wall_ns - last_.wall_ns), cpu = std::max<int64_t>(0, now.cpu_ns - last_.cpu_ns);
  last_ = now;
  for (const CoreSide side : {kInference, kTraining}) {
    if (running(side) == 0) continue;
    usage_[index(side)].wall_ns += wall;
    usage_[index(side)].cpu_ns += cpu;
  }
  if (!share_) return;
  const auto time = static_cast<double>(wall);
  if (running(kTraining) > 0) {
    if (waiting(kInference) > 0) balance_ -= *share_ * time;
  } else if (waiting(kTraining) > 0) {
    balance_ += (1 - *share_) * time;  // a run of inference, or cores reserved for it
  }
  balance_ = std::clamp(balance_, -kMostNs, kMostNs);
}

TurnLedger::Ticket TurnLedger::arrive(CoreSide side, const CoreInstant& now) {
  advance(now);
  if (running(side) == 0 && waiting(side) == 0) {
    const int64_t away = now.wall_ns - left_at_[index(side)];
    if (away > kForgottenNs) balance_ = 0;
    if (side == kInference) {
      gap_ns_ += (std::min(kLongestGapNs, static_cast<double>(away)) - gap_ns_) / 4;
      // Training has had the gap between two steps: it counts as if the step had waited.
      if (share_ && running(kTraining) > 0 && static_cast<double>(away) <= kLongestGapNs)
        balance_ -= *share_ * static_cast<double>(away);
    }
  }
  const Ticket ticket{side, next_number_++, batches_ - (side == kInference && running(kTraining) > 0 ? 1 : 0), now.wall_ns};
  ++waiting(side);
  schedule_yield(now);
  return ticket;
}

// Exactly one of two waiting sides may begin on free cores, so nobody waits for good.
bool TurnLedger::may_begin(const Ticket& ticket, const CoreInstant& now) const {
  if (!share_) return true;
  if (ticket.side == kInference)
    return running(kTraining) == 0 && (waiting(kTraining) == 0 || is_due(ticket) || balance_ <= 0);
  if (running(kInference) > 0 || due_ > 0) return false;
  if (waiting(kInference) > 0) return running(kTraining) == 0 && balance_ > 0;
  return running(kTraining) > 0 || now.wall_ns >= reserved_until_;
}

void TurnLedger::leave_queue(const Ticket& ticket) {
  --waiting(ticket.side);
  if (is_due(ticket)) --due_;
}

void TurnLedger::begin(const Ticket& ticket, const CoreInstant& now) {
  advance(now);
  leave_queue(ticket);
  ++running(ticket.side);
  ++usage_[index(ticket.side)].turns;
  if (ticket.side == kTraining) {
    ++batches_;
  } else {
    reserved_until_ = 0;
    longest_wait_ = std::max(longest_wait_, now.wall_ns - ticket.since_ns);
    most_batches_ = std::max(most_batches_, batches_ - ticket.batches);
  }
  schedule_yield(now);
}

void TurnLedger::give_up(const Ticket& ticket, const CoreInstant& now) {
  advance(now);
  leave_queue(ticket);
  if (running(ticket.side) == 0 && waiting(ticket.side) == 0) left_at_[index(ticket.side)] = now.wall_ns;
  schedule_yield(now);
}

void TurnLedger::end(CoreSide side, const CoreInstant& now) {
  advance(now);
  --running(side);
  if (running(side) == 0 && waiting(side) == 0) left_at_[index(side)] = now.wall_ns;
  if (running(side) == 0 && side == kTraining) {
    due_before_ = next_number_;
    due_ = waiting(kInference);
  }
  const bool is_behind = share_ && balance_ <= 0 && gap_ns_ <= kMostGapNs;
  if (running(side) == 0 && side == kInference && waiting(side) == 0 && is_behind)
    reserved_until_ = now.wall_ns + static_cast<int64_t>(std::clamp(4 * gap_ns_, kLeastGapNs, kLongestGapNs));
  schedule_yield(now);
}

bool TurnLedger::yields(bool begins_batch, const CoreInstant& now) {
  advance(now);
  const bool waits = share_ && waiting(kInference) > 0;
  if (waits && (begins_batch || now.wall_ns >= yield_at_)) return true;
  if (begins_batch) ++batches_;
  schedule_yield(now);
  return false;
}

void TurnLedger::schedule_yield(const CoreInstant& now) {
  yield_at_ = kNever;
  if (!share_ || running(kTraining) == 0 || waiting(kInference) == 0) return;
  const double left = std::max(0.0, balance_ + kDebtNs);
  if (left == 0)
    yield_at_ = now.wall_ns;
  else if (*share_ > 0)
    yield_at_ = now.wall_ns + static_cast<int64_t>(std::ceil(std::min(left / *share_, 1e15)));
}

}  // namespace tessera
