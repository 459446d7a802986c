// SessionComms: a session's communicators: one per distinct group of the Program, and one
// of two members, sender first, per ordered pair of ranks with messages, so that messages
// in one direction wait for nothing else. Can be aborted from any thread, and remade.
//
// A group whose members all live here is of their backend, another of the transport. Every
// process of the world makes its own part, of the groups that have members here.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/executable_impl.h"
#include "runtime/rank_executor.h"
#include "runtime/transport.h"

namespace tessera {

class SessionComms {
 public:
  // `options`: perturbation_seed and watchdog_s.
  SessionComms(const Executable::Impl& executable, const SessionOptions& options)
      : executable_(executable), perturbation_seed_(options.perturbation_seed), watchdog_s_(options.watchdog_s) {}
  ~SessionComms() { destroy(); }
  SessionComms(const SessionComms&) = delete;
  SessionComms& operator=(const SessionComms&) = delete;

  // Replaces the present ones; keeps counts. Collective over the world. kFailedPrecondition where processes
  // have programs of different plans.
  Status create();
  // Every waiter returns kAborted, in all processes; they get `why`. From any thread.
  void abort(const Status& why);
  // The error of a process that aborted, or of its loss; ok: none. From any thread.
  Status failure_elsewhere() const;
  // Activity, for the watchdog: tells the other processes of this one's; whether any process was active in the last seconds. Any thread.
  void note_activity() const;
  bool is_active_elsewhere() const;
  Channel* channel() const { return channel_.get(); }  // to the other processes; null: all ranks live here
  RankComms members_of(size_t index);  // of the rank at this index of Program::ranks; valid until `create`
  std::vector<CommReport> report() const;  // of the ranks that live here

 private:
  struct Set {
    std::vector<int32_t> ranks;
    std::string axis;
    std::vector<CommMember> members;  // by position, without an end for those of other processes; addresses are stable
  };
  // Counts of one rank, by collective and axis.
  using Counts = std::map<std::pair<int32_t, std::string>, std::pair<int64_t, int64_t>>;  // -> calls, bytes

  // Use: the calls planned for a communicator (tsr_abi_comm_use).
  struct Use {
    std::vector<tsr_abi_collective> collectives;
    int32_t messages = 0;
    int64_t message_bytes = 0;
  };
  using SetKey = std::pair<std::vector<int32_t>, std::string>;  // ranks, axis

  std::map<SetKey, Use> uses() const;
  Status add(const std::vector<int32_t>& ranks, const std::string& axis, const Use& use);
  Set* find(const std::vector<int32_t>& ranks, const std::string& axis);
  void destroy();
  std::vector<Counts> counts() const;  // by Program::ranks, since the last `create`

  Status perturb() const;
  Status open_channel();

  const Executable::Impl& executable_;
  const uint64_t perturbation_seed_;
  const double watchdog_s_;
  std::unique_ptr<Channel> channel_;  // null where all ranks live here
  std::vector<Set> sets_;
  std::vector<Counts> kept_;   // of replaced communicators, by Program::ranks
  std::vector<Counts> taken_;  // at the last reset of the report, likewise
  mutable std::mutex mutex_;   // guards create against abort
};

}  // namespace tessera
