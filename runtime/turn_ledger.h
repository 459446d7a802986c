// TurnLedger: decides whose turn it is on cores that inference and training share. Deficit accounting: while both sides have
// work, time on the cores is weighed by the share, and the side behind goes next. Times are the caller's, so tests have
// a clock of their own. One thread at a time.
//
//   - One side at a time holds the cores; the runs of a side share them as without a share.
//   - A run of inference that waits at the end of a micro-batch of training goes next, whatever the balance. So it waits for
//     one micro-batch at most.
//   - Training lets inference go earlier, between two kernels, once inference is behind by kDebtNs.
//   - A side without work is not charged for, and leaves its time to the other. Gaps between the steps of an engine are no lack of
//     work: while inference is behind, the cores stay reserved for as long as its recent gaps took.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

namespace tessera {

// The sides that take turns. kNone: runs that take none, such as measurements.
enum class CoreSide : uint8_t { kInference = 0, kTraining = 1, kNone = 2 };

// CoreInstant: the time, and the CPU time that the process has taken.
struct CoreInstant {
  int64_t wall_ns = 0, cpu_ns = 0;
};

// CoreUsage: the turns of one side so far.
struct CoreUsage {
  int64_t turns = 0;
  int64_t wall_ns = 0;  // with the cores
  int64_t cpu_ns = 0;   // of the process meanwhile
};

class TurnLedger {
 public:
  // Ticket: a run that waits for its turn.
  struct Ticket {
    CoreSide side = CoreSide::kNone;
    int64_t number = 0;
    int64_t batches = 0;   // micro-batches that training had begun
    int64_t since_ns = 0;
  };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // 0: inference has a turn a micro-batch; 1: training has only the time that inference leaves. nullopt: nobody waits.
  void set_share(std::optional<double> inference_share, const CoreInstant& now);
  std::optional<double> share() const { return share_; }

  // Charges the time until now.
  void advance(const CoreInstant& now);
  Ticket arrive(CoreSide side, const CoreInstant& now);
  bool may_begin(const Ticket& ticket, const CoreInstant& now) const;
  void begin(const Ticket& ticket, const CoreInstant& now);
  void give_up(const Ticket& ticket, const CoreInstant& now);
  void end(CoreSide side, const CoreInstant& now);
  // Whether a running turn of training ends here, and waits for its next; else a micro-batch that begins here is counted.
  bool yields(bool begins_batch, const CoreInstant& now);

  // The time from which `yields` between kernels; kNever: not with the present waiters.
  int64_t yield_at_ns() const { return yield_at_; }
  // The end of the time reserved for inference; 0: none is.
  int64_t reserved_until_ns() const { return reserved_until_; }

  const CoreUsage& usage(CoreSide side) const { return usage_[index(side)]; }
  // Inference runs: the longest wait, and the most micro-batches of training, of all trainers, within one wait.
  int64_t longest_wait_ns() const { return longest_wait_; }
  int64_t most_batches_waited() const { return most_batches_; }

 private:
  static size_t index(CoreSide side) { return static_cast<size_t>(side); }
  int64_t& running(CoreSide side) { return running_[index(side)]; }
  int64_t running(CoreSide side) const { return running_[index(side)]; }
  int64_t& waiting(CoreSide side) { return waiting_[index(side)]; }
  int64_t waiting(CoreSide side) const { return waiting_[index(side)]; }
  bool is_due(const Ticket& ticket) const { return ticket.side == CoreSide::kInference && ticket.number < due_before_; }
  void leave_queue(const Ticket& ticket);
  void schedule_yield(const CoreInstant& now);

  std::optional<double> share_;
  CoreInstant last_;
  std::array<int64_t, 2> running_{}, waiting_{};  // runs, by side
  std::array<int64_t, 2> left_at_{};              // when a side last had neither
  std::array<CoreUsage, 2> usage_{};
  double balance_ = 0;  // weighed ns that inference is ahead of its share
  int64_t next_number_ = 0;
  int64_t due_before_ = 0, due_ = 0;  // tickets that training has given the cores to, and their count
  double gap_ns_ = 0;                 // between steps of inference, a moving average
  int64_t reserved_until_ = 0, yield_at_ = kNever;
  int64_t batches_ = 0;
  int64_t longest_wait_ = 0, most_batches_ = 0;
};

}  // namespace tessera
