// Communicator between threads of one process. Members publish their buffers and wait at a barrier. Each then
// does its own share of the work straight from the others' memory: no staging buffers, no copies except the
// result.
//
// Results are the same for any timing: every element is reduced by one member, in group order. Waits sleep,
// so members may outnumber cores. After an abort, or a mismatch between members, the group stays unusable.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph/base/perturbation.h"
#include "graph/base/result.h"
#include "graph/base/waiting.h"
#include "runtime/backend_abi.h"

namespace tessera::cpu {

class CommGroup;

// One member of a group; one thread at a time calls, except for `abort`.
class Communicator {
 public:
  // One Communicator per member; they keep the group alive together. `host` gives the pool.
  static std::vector<std::unique_ptr<Communicator>> create(const tsr_host_api& host, int32_t members);
  ~Communicator();

  Status collective(const tsr_abi_collective& what, const void* in, void* out);
  // A send returns when the receiver has the bytes; a receive waits for its send.
  Status send(int32_t peer, const void* in, int64_t bytes);
  Status receive(int32_t peer, void* out, int64_t bytes);
  // Sends and receives between the two are posted together and waited for at the end.
  Status begin_exchange();
  Status end_exchange();
  void abort();
  // Short random waits where others could overtake this member, for tests. 0: none.
  void perturb(uint64_t seed) { perturbation_ = Perturbation(seed); }
  const tsr_abi_comm_counters& counters() const { return counters_; }

 private:
  Communicator(std::shared_ptr<CommGroup> group, int32_t position);
  Status exchange(const tsr_abi_collective& what);
  Status check_peer(int32_t peer, int64_t bytes, std::string_view what) const;
  Status post(int32_t peer, const void* in, int64_t bytes);
  Status wait_taken(int32_t peer);

  // One send or receive of an exchange.
  struct Transfer {
    bool is_send;
    int32_t peer;
    const void* in;
    void* out;
    int64_t bytes;
    int32_t round;  // how many earlier ones of the exchange go the same way to the same peer
  };

  std::shared_ptr<CommGroup> group_;  // shared by the ends, which may be destroyed in any order
  int32_t position_;
  tsr_abi_comm_counters counters_{};
  Perturbation perturbation_;
  bool in_exchange_ = false;
  std::vector<Transfer> transfers_;
};

}  // namespace tessera::cpu
