// SessionComms: a session's communicators: one per distinct group of the Program, and one
// of two members, sender first, per ordered pair of ranks with messages, so that messages
// in one direction wait for nothing else. Can be aborted from any thread, and remade.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/executable_impl.h"
#include "runtime/rank_executor.h"

namespace tessera {

class SessionComms {
 public:
  // `perturbation_seed`: see SessionOptions.
  SessionComms(const Executable::Impl& executable, uint64_t perturbation_seed)
      : executable_(executable), perturbation_seed_(perturbation_seed) {}
  ~SessionComms() { destroy(); }
  SessionComms(const SessionComms&) = delete;
  SessionComms& operator=(const SessionComms&) = delete;

  Status create();                     // replaces the present ones; keeps counts
  void abort();                        // from any thread; every waiter returns kAborted
  RankComms members_of(int32_t rank);  // valid until `create`
  std::vector<CommReport> report() const;

 private:
  struct Set {
    std::vector<int32_t> ranks;
    std::string axis;
    std::vector<CommMember> members;  // by position; addresses are stable
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
  std::vector<Counts> counts() const;  // by rank, since the last `create`

  Status perturb() const;

  const Executable::Impl& executable_;
  const uint64_t perturbation_seed_;
  std::vector<Set> sets_;
  std::vector<Counts> kept_;   // of replaced communicators, by rank
  std::vector<Counts> taken_;  // at the last reset of the report, by rank
  mutable std::mutex mutex_;   // guards create against abort
};

}  // namespace tessera
