// CommEnd: one rank's end of a communicator, which is of its backend where all members live here, and else of a
// transport (spanning_group.h). Its rank's streams call, one at a time; `abort` is for any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"

namespace tessera {

class CommEnd {
 public:
  virtual ~CommEnd() = default;

  // As comm_collective, comm_send and comm_recv of backend_abi.h; `peer` is a position in the group.
  virtual Status collective(tsr_abi_stream* stream, const tsr_abi_collective& what, const void* in, void* out) = 0;
  virtual Status send(tsr_abi_stream* stream, int32_t peer, const void* in, int64_t bytes) = 0;
  virtual Status receive(tsr_abi_stream* stream, int32_t peer, void* out, int64_t bytes) = 0;
  virtual void abort() = 0;  // of the whole group
  virtual Status perturb(uint64_t seed) = 0;
  virtual tsr_abi_comm_counters counters() const = 0;  // since it was made
};

// CommMember: one rank's member of a communicator.
struct CommMember {
  std::unique_ptr<CommEnd> end;
  // Added to the end's counts: launches of graphs, minus the captures that made them.
  tsr_abi_comm_counters replayed{};
};

}  // namespace tessera
